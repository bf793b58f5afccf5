package blob

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/state"
)

// sasParams are the query parameters of a shared access signature for a blob or a container.
var sasParams = []string{"sv", "sr", "st", "se", "sp", "spr", "sig", "rscc", "rscd", "rsce", "rscl", "rsct"}

// foreignSAS names what a shared access signature with a parameter is, or asks for, that this
// server does not do.
var foreignSAS = map[string]string{
	"ss": "account shared access signatures", "skoid": "user delegation shared access signatures", "si": "stored access policies",
	"sip": "the IP range of a shared access signature", "ses": "the encryption scope of a shared access signature",
	"sdd": "shared access signatures of directories",
}

// oldestSAS is the oldest version of the service whose signatures are verified; encryptionInSAS is
// the first that signs the encryption scope.
const (
	oldestSAS       = "2018-11-09"
	encryptionInSAS = "2020-12-06"
)

// checkSAS verifies a service shared access signature. What it permits is for the operation to
// check. [create-service-sas]
func (s *Server) checkSAS(r *http.Request) error {
	q := r.URL.Query()
	for name, what := range foreignSAS {
		if q.Has(name) {
			return unsupportedText(what)
		}
	}
	kind, version := q.Get("sr"), q.Get("sv")
	if !slices.Contains([]string{"b", "c"}, kind) {
		return unsupportedText("shared access signatures with sr=" + kind)
	}
	if version < oldestSAS {
		return unsupportedText("shared access signatures of versions before " + oldestSAS)
	}
	given, err := base64.StdEncoding.DecodeString(q.Get("sig"))
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(s.sasToSign(r, q)))
	if err != nil || !hmac.Equal(given, mac.Sum(nil)) {
		return authFailed("Signature did not match.")
	}
	now := time.Now()
	if ends, ok := sasTime(q.Get("se")); !ok || !now.Before(ends) {
		return authFailed("Signature not valid in the specified time frame: it ends at " + q.Get("se") + ".")
	}
	if begins, ok := sasTime(q.Get("st")); q.Has("st") && (!ok || now.Before(begins)) {
		return authFailed("Signature not valid in the specified time frame: it begins at " + q.Get("st") + ".")
	}
	if q.Get("spr") == "https" && r.TLS == nil && r.URL.Scheme != "https" {
		return state.NewError(http.StatusForbidden, "AuthorizationProtocolMismatch", "This request is not authorized to perform this operation using this protocol.")
	}
	return nil
}

// sasToSign returns the text that a service shared access signature signs.
func (s *Server) sasToSign(r *http.Request, q url.Values) string {
	container, blob, _ := strings.Cut(s.path(r), "/")
	resource := "/blob/" + s.opts.Account + "/" + container
	if q.Get("sr") == "b" {
		resource += "/" + blob
	}
	lines := []string{q.Get("sp"), q.Get("st"), q.Get("se"), resource, q.Get("si"), q.Get("sip"), q.Get("spr"), q.Get("sv"), q.Get("sr"), ""}
	if q.Get("sv") >= encryptionInSAS {
		lines = append(lines, q.Get("ses"))
	}
	return strings.Join(append(lines, q.Get("rscc"), q.Get("rscd"), q.Get("rsce"), q.Get("rscl"), q.Get("rsct")), "\n")
}

// sasTime reads a time in one of the forms that a signature may have.
func sasTime(text string) (time.Time, bool) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z", "2006-01-02"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// permits refuses an operation that the request's signature does not permit, or that this server
// does not do by one.
func (op operation) permits(q url.Values) error {
	switch {
	case !op.bySAS:
		return unsupportedText(op.name + " by a shared access signature")
	case !strings.Contains(q.Get("sp"), "r"):
		return state.NewError(http.StatusForbidden, "AuthorizationPermissionMismatch", "This request is not authorized to perform this operation using this permission.")
	}
	return nil
}
