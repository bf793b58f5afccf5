package servicebus

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// tokens makes tokens, each of which is the right to use one audience.
type tokens interface {
	token(ctx context.Context, audience string) (token, error)
}

// token is what is sent to the claims-based security node.
type token struct {
	kind    string // of the two below
	value   string
	expires time.Time // zero: it cannot be renewed
}

const (
	kindSAS = "servicebus.windows.net:sastoken"
	kindJWT = "jwt"
)

func (t token) expiry() string {
	if t.expires.IsZero() {
		return "0"
	}
	return strconv.FormatInt(t.expires.Unix(), 10)
}

// identity signs in as the workload.
type identity struct{ credential azcore.TokenCredential }

const scope = "https://servicebus.azure.net//.default"

func (i identity) token(ctx context.Context, _ string) (token, error) {
	if i.credential == nil {
		return token{}, errors.New("get a token: there is no identity to sign in with")
	}
	got, err := i.credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{scope}})
	if err != nil {
		return token{}, fmt.Errorf("get a token of the workload's identity: %w", err)
	}
	return token{kind: kindJWT, value: got.Token, expires: got.ExpiresOn}, nil
}

// signature is a shared access signature from the connection string.
type signature string

func (s signature) token(context.Context, string) (token, error) {
	return token{kind: kindSAS, value: string(s)}, nil
}

// key makes shared access signatures.
type key struct{ name, secret string }

// signatureLife is how long a signature made here is valid.
const signatureLife = time.Hour

func (k key) token(_ context.Context, audience string) (token, error) {
	expires := time.Now().Add(signatureLife).Round(time.Second)
	resource := strings.ToLower(url.QueryEscape(audience))
	mac := hmac.New(sha256.New, []byte(k.secret))
	mac.Write([]byte(resource + "\n" + strconv.FormatInt(expires.Unix(), 10)))
	return token{kind: kindSAS, expires: expires, value: fmt.Sprintf("SharedAccessSignature sr=%s&sig=%s&se=%d&skn=%s", resource,
		url.QueryEscape(base64.StdEncoding.EncodeToString(mac.Sum(nil))), expires.Unix(), k.name)}, nil
}

// renewal returns how long to wait before a token is renewed: until ten minutes before it expires,
// and at least until half of its time has passed, since an identity may return the same token until
// shortly before it expires.
func renewal(now, expires time.Time) time.Duration {
	const ahead, least = 10 * time.Minute, 10 * time.Second
	left := expires.Sub(now)
	return max(left-ahead, left/2, least)
}
