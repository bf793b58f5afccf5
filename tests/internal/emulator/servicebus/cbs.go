package servicebus

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// putToken handles $cbs: the client proves, for an audience, that it may use an entity. A
// shared access signature is checked; a JWT only has to be there, since there is no authority
// here to check it against.
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
	switch kind {
	case "servicebus.windows.net:sastoken":
		if problem := checkSignature(token, audience); problem != "" {
			return response{Status: http.StatusUnauthorized, Description: problem}
		}
	case "jwt":
	default:
		return badRequest("token type '" + kind + "' is not supported by this emulator")
	}
	c.claims[strings.ToLower(strings.Trim(u.Path, "/"))] = true
	return response{Status: http.StatusAccepted, Description: "Accepted"}
}

// checkSignature returns what is wrong with a shared access signature, or "".
func checkSignature(token, audience string) string {
	rest, found := strings.CutPrefix(token, "SharedAccessSignature ")
	if !found {
		return "InvalidSignature: the token is not a shared access signature."
	}
	part := map[string]string{}
	for kv := range strings.SplitSeq(rest, "&") {
		k, v, _ := strings.Cut(kv, "=")
		part[k] = v
	}
	mac := hmac.New(sha256.New, []byte(keyValue))
	mac.Write([]byte(part["sr"] + "\n" + part["se"]))
	want := base64.StdEncoding.EncodeToString(mac.Sum(nil))
	got, err := url.QueryUnescape(part["sig"])
	resource, err2 := url.QueryUnescape(part["sr"])
	expiry, err3 := strconv.ParseInt(part["se"], 10, 64)
	switch {
	case err != nil || err2 != nil || err3 != nil:
		return "InvalidSignature: the token is malformed."
	case part["skn"] != keyName || !hmac.Equal([]byte(got), []byte(want)):
		return "InvalidSignature: The token has an invalid signature."
	case time.Now().Unix() >= expiry:
		return "ExpiredToken: The token is expired."
	case !strings.HasPrefix(strings.ToLower(audience), strings.ToLower(resource)):
		return "InvalidAudience: the token is for another resource."
	}
	return ""
}
