package servicebus

import (
	"crypto/hmac"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/amqp"
)

// The types of tokens.
const (
	tokenSAS = "servicebus.windows.net:sastoken"
	tokenJWT = "jwt"
)

// putToken handles $cbs: the client proves, for an audience, that it may use an entity. A shared
// access signature is checked; a JWT only has to be present, since there is no authority here to
// check it against, and the client states until when it is valid.
func (c *client) putToken(r *request) response {
	if r.Operation != "put-token" {
		return response{Status: http.StatusNotImplemented, Description: "operation '" + r.Operation + "' is not supported on $cbs by this emulator"}
	}
	audience, _ := r.App["name"].(string)
	kind, _ := r.App["type"].(string)
	token, _ := r.Value.(string)
	u, err := url.Parse(audience)
	if err != nil || audience == "" || token == "" {
		return badRequest("put-token needs a name that is a URL and a token")
	}
	var g grant
	switch {
	case kind == tokenSAS, kind == tokenJWT && strings.HasPrefix(token, signaturePrefix): // Python calls its signatures so
		var problem string
		if g, problem = c.server.checkSignature(token, audience); problem != "" {
			return response{Status: http.StatusUnauthorized, Description: problem}
		}
	case kind == tokenJWT:
		g.rights = Listen | Send | Manage
		switch expiration := r.App["expiration"].(type) {
		case time.Time: // Python's
			g.expires = expiration
		case string:
			if seconds, err := strconv.ParseInt(expiration, 10, 64); err == nil {
				g.expires = time.Unix(seconds, 0)
			}
		}
		if !g.expires.IsZero() && !time.Now().Before(g.expires) {
			return response{Status: http.StatusUnauthorized, Description: "ExpiredToken: The token is expired."}
		}
	default:
		return badRequest("token type '" + kind + "' is not supported by this emulator")
	}
	// The service already checks here that the entity exists: clients detect "not found" by this
	// status.
	entity, _ := cutSuffixFold(strings.Trim(u.Path, "/"), managementSuffix)
	if entity != "" && !c.server.broker.Exists(entity) {
		return response{Status: http.StatusNotFound, Description: "The messaging entity '" + entity + "' could not be found."}
	}
	c.claims.put(strings.ToLower(strings.Trim(u.Path, "/")), g)
	return response{Status: http.StatusAccepted, Description: "Accepted"}
}

// signIn takes the name of a key and the key, as clients give them that know no $cbs: the
// connection has the key's rights to everything.
func (c *client) signIn(name, password string) bool {
	for _, k := range c.server.opts.Keys {
		if k.Name == name && hmac.Equal([]byte(k.Value), []byte(password)) {
			c.claims.put("", grant{rights: k.all()})
			return true
		}
	}
	return false
}

// rightsFor returns the rights that a link to an entity needs.
func rightsFor(l *amqp.Link, management bool) Rights {
	switch {
	case management:
		return Listen | Send // either will do: the operations differ
	case l.PeerSends:
		return Send
	}
	return Listen
}

// String names the claims a client lacks, as the service does.
func (r Rights) String() string {
	var names []string
	for _, x := range []struct {
		right Rights
		name  string
	}{{Listen, "Listen"}, {Send, "Send"}, {Manage, "Manage"}} {
		if r&x.right != 0 {
			names = append(names, x.name)
		}
	}
	return strings.Join(names, ",")
}
