package blob

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/state"
)

// maxSkew is how far x-ms-date may be from the server's clock [authorize].
const maxSkew = 15 * time.Minute

func decodeKey(key string) ([]byte, error) { return base64.StdEncoding.DecodeString(key) }

func authFailed(detail string) error {
	return state.NewError(http.StatusForbidden, "AuthenticationFailed",
		"Server failed to authenticate the request: "+detail)
}

// authenticate verifies the shared-key signature or the bearer token of a
// request. Nothing of either is ever put into an error or a log.
func (s *Server) authenticate(r *http.Request) error {
	scheme, credential, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	switch scheme {
	case "":
		return state.NewError(http.StatusUnauthorized, "NoAuthenticationInformation",
			"Server failed to authenticate the request: there is no Authorization header and no shared access signature.")
	case "Bearer":
		if s.opts.Token == "" || !hmac.Equal([]byte(credential), []byte(s.opts.Token)) {
			return state.NewError(http.StatusUnauthorized, "InvalidAuthenticationInfo", "The bearer token is not valid here.")
		}
		return nil
	case "SharedKey":
	default:
		return unsupportedText("the authorization scheme " + scheme)
	}
	date, err := http.ParseTime(cmp.Or(r.Header.Get("x-ms-date"), r.Header.Get("Date"))) // Java's client sends Date alone
	if err != nil {
		return authFailed("x-ms-date, or Date without it, is missing or is no HTTP date.")
	}
	if skew := time.Since(date).Abs(); skew > maxSkew {
		return authFailed("the request's date is more than 15 minutes off.")
	}
	account, signature, ok := strings.Cut(credential, ":")
	if !ok || account != s.opts.Account {
		return authFailed("the account is not this one.")
	}
	given, err := base64.StdEncoding.DecodeString(signature)
	if err != nil {
		return authFailed("the signature is not base64.")
	}
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(stringToSign(r, s.opts.Account)))
	if !hmac.Equal(given, mac.Sum(nil)) {
		return authFailed("the signature does not match. Make sure the account key is right.")
	}
	return nil
}

// stringToSign returns the canonical text of a request [authorize-with-shared-key].
func stringToSign(r *http.Request, account string) string {
	length := ""
	if r.ContentLength > 0 {
		length = strconv.FormatInt(r.ContentLength, 10)
	}
	h := r.Header
	date := ""
	if h.Get("x-ms-date") == "" {
		date = h.Get("Date")
	}
	return strings.Join([]string{
		r.Method, h.Get("Content-Encoding"), h.Get("Content-Language"), length, h.Get("Content-MD5"),
		h.Get("Content-Type"), date, h.Get("If-Modified-Since"), h.Get("If-Match"), h.Get("If-None-Match"),
		h.Get("If-Unmodified-Since"), h.Get("Range"), canonicalHeaders(h), canonicalResource(r.URL, account),
	}, "\n")
}

func canonicalHeaders(h http.Header) string {
	var names []string
	for name := range h {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "x-ms-") {
			names = append(names, lower)
		}
	}
	slices.SortFunc(names, compareHeaderNames)
	lines := make([]string, 0, len(names))
	for _, name := range names {
		lines = append(lines, name+":"+strings.Join(h.Values(name), ","))
	}
	return strings.Join(lines, "\n")
}

// compareHeaderNames orders header names as the service does, which is not by
// bytes: a hyphen counts only between names that are otherwise equal, and an
// underscore comes before digits and letters.
func compareHeaderNames(a, b string) int {
	weigh := strings.NewReplacer("-", "", "_", " ")
	if c := strings.Compare(weigh.Replace(a), weigh.Replace(b)); c != 0 {
		return c
	}
	return strings.Compare(b, a)
}

func canonicalResource(u *url.URL, account string) string {
	var out strings.Builder
	out.WriteString("/" + account)
	if u.Path == "" {
		out.WriteString("/")
	}
	out.WriteString(u.EscapedPath())
	query := u.Query()
	names := make([]string, 0, len(query))
	for name := range query {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		values := slices.Sorted(slices.Values(query[name]))
		out.WriteString("\n" + strings.ToLower(name) + ":" + strings.Join(values, ","))
	}
	return out.String()
}
