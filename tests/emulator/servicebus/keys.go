package servicebus

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Rights are the permissions of a key or token; they combine.
type Rights uint8

// The rights. Manage includes the others.
const (
	Listen Rights = 1 << iota
	Send
	Manage
)

// Key is a shared access key of the namespace.
type Key struct {
	Name   string
	Value  string
	Rights Rights
}

// all returns the key's rights and those that they include.
func (k Key) all() Rights {
	if k.Rights&Manage != 0 {
		return Manage | Send | Listen
	}
	return k.Rights
}

// RootKey returns the only key of a namespace by default, the same as the official emulator's.
func RootKey() Key {
	return Key{Name: "RootManageSharedAccessKey", Value: "SAS_KEY_VALUE", Rights: Manage | Send | Listen}
}

// ConnectionString returns the connection string of a server that listens on addr (host:port), with
// the default key.
func ConnectionString(addr string) string { return RootKey().ConnectionString(addr) }

// ConnectionString returns the connection string with which an SDK signs in with the key, over
// plain AMQP, to a server that listens on addr (host:port).
func (k Key) ConnectionString(addr string) string {
	return "Endpoint=sb://" + addr + ";SharedAccessKeyName=" + k.Name +
		";SharedAccessKey=" + k.Value + ";UseDevelopmentEmulator=true;"
}

// grant is the set of permissions of a token.
type grant struct {
	rights  Rights
	expires time.Time
}

// signaturePrefix begins a shared access signature.
const signaturePrefix = "SharedAccessSignature "

// checkSignature returns what a shared access signature grants, or what is wrong with it.
func (s *Server) checkSignature(token, audience string) (grant, string) {
	rest, found := strings.CutPrefix(token, signaturePrefix)
	if !found {
		return grant{}, "InvalidSignature: the token is not a shared access signature."
	}
	part := map[string]string{}
	for kv := range strings.SplitSeq(rest, "&") {
		k, v, _ := strings.Cut(kv, "=")
		part[k] = v
	}
	var key Key
	for _, k := range s.opts.Keys {
		if k.Name == part["skn"] {
			key = k
		}
	}
	mac := hmac.New(sha256.New, []byte(key.Value))
	mac.Write([]byte(part["sr"] + "\n" + part["se"]))
	want := base64.StdEncoding.EncodeToString(mac.Sum(nil))
	got, err := url.QueryUnescape(part["sig"])
	resource, err2 := url.QueryUnescape(part["sr"])
	expiry, err3 := strconv.ParseInt(part["se"], 10, 64)
	switch {
	case err != nil || err2 != nil || err3 != nil:
		return grant{}, "InvalidSignature: the token is malformed."
	case key.Name == "" || !hmac.Equal([]byte(got), []byte(want)):
		return grant{}, "InvalidSignature: The token has an invalid signature."
	case time.Now().Unix() >= expiry:
		return grant{}, "ExpiredToken: The token is expired. Expiration time: '" + time.Unix(expiry, 0).UTC().Format(time.DateTime) + "'."
	case !covers(resource, audience):
		return grant{}, "InvalidAudience: the token is for another resource."
	}
	return grant{rights: key.all(), expires: time.Unix(expiry, 0)}, ""
}

// covers reports whether a token for the resource is good for the audience: the same host, and
// the same path or one above it. Neither scheme nor port matters, and clients differ in whether
// they write one.
func covers(resource, audience string) bool {
	bare := func(s string) string {
		if _, rest, found := strings.Cut(s, "://"); found {
			s = rest
		}
		s, _, _ = strings.Cut(s, "?")
		host, path, _ := strings.Cut(s, "/")
		if name, _, err := net.SplitHostPort(host); err == nil { // Java leaves the port out of the audience
			host = name
		}
		return strings.ToLower(strings.TrimRight(host+"/"+path, "/"))
	}
	r, a := bare(resource), bare(audience)
	return r == a || strings.HasPrefix(a, r+"/")
}
