package servicebus

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/amqp"
)

// putToken handles $cbs: the client proves, for an audience, that it may use an entity. A
// shared access signature is checked; a JWT only has to be there, since there is no authority
// here to check it against, and the client says until when it is valid.
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
	switch kind {
	case "servicebus.windows.net:sastoken":
		var problem string
		if g, problem = c.server.checkSignature(token, audience); problem != "" {
			return response{Status: http.StatusUnauthorized, Description: problem}
		}
	case "jwt":
		g.rights = Listen | Send | Manage
		if text, is := r.App["expiration"].(string); is {
			if seconds, err := strconv.ParseInt(text, 10, 64); err == nil {
				g.expires = time.Unix(seconds, 0)
			}
		}
		if !g.expires.IsZero() && !time.Now().Before(g.expires) {
			return response{Status: http.StatusUnauthorized, Description: "ExpiredToken: The token is expired."}
		}
	default:
		return badRequest("token type '" + kind + "' is not supported by this emulator")
	}
	// The service looks for the entity already here: clients tell "not found" by this status.
	entity, _ := cutSuffixFold(strings.Trim(u.Path, "/"), managementSuffix)
	if entity != "" && !c.server.broker.Exists(entity) {
		return response{Status: http.StatusNotFound, Description: "The messaging entity '" + entity + "' could not be found."}
	}
	c.claims.put(strings.ToLower(strings.Trim(u.Path, "/")), g)
	return response{Status: http.StatusAccepted, Description: "Accepted"}
}

// rightsFor is what a link to an entity needs.
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
