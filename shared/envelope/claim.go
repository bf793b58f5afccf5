package envelope

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// claimCheck is the content type of a message whose body is stored in a blob. It is a separate type
// so that a reader that does not know claim checks refuses the message, instead of reading it as
// one with an empty body.
const claimCheck = "application/vnd.sluice.claim-check"

// The application properties of a claim check.
const (
	propClaimBlob   = "claim_blob"
	propClaimSize   = "claim_size"
	propClaimSHA256 = "claim_sha256"
)

// Claim holds where the body of a change is stored, and how to verify it. The stored body is the
// server's BSON, whatever the format of the stream's other messages.
type Claim struct {
	Blob   string // its name in the container that both services are configured with
	Size   int64  // bytes
	SHA256 string // of the bytes, 64 hex digits
}

// NewClaim returns the claim to the body of a change. The blob's name depends on the change and the
// content: the same body of the same change is always stored under the same name, and another body
// cannot replace it (the document of a change may be another one when it is looked up again).
func NewClaim(c Change) Claim {
	sum := sha256.Sum256(c.Body)
	digest := hex.EncodeToString(sum[:])
	return Claim{
		Blob: fmt.Sprintf("%s/%s-%s.bson", c.Stream, MessageID(c.Stream, c.Token), digest[:16]),
		Size: int64(len(c.Body)), SHA256: digest,
	}
}

// Redeem sets the body of the change to the stored one. The error is an [*Error]: the body differs
// from the claimed one, or is not BSON.
func (c *Change) Redeem(body []byte) error {
	sum := sha256.Sum256(body)
	switch {
	case c.Claim == nil:
		return errors.New("redeem claim check: the change has none")
	case int64(len(body)) != c.Claim.Size:
		return c.Claim.WrongSize(int64(len(body)))
	case hex.EncodeToString(sum[:]) != c.Claim.SHA256:
		return &Error{ReasonClaimCorrupt, fmt.Sprintf("blob %s does not contain the bytes that were stored: their SHA-256 differs", c.Claim.Blob), nil}
	}
	if err := validate(body); err != nil {
		return undecodable("BSON", len(body), err)
	}
	c.Body, c.Claim = body, nil
	return nil
}

// WrongSize returns the error for a stored body whose size differs from the claimed one.
func (c *Claim) WrongSize(size int64) *Error {
	return &Error{ReasonClaimCorrupt, fmt.Sprintf("blob %s contains %d bytes, but %d were stored", c.Blob, size, c.Size), nil}
}

// check refuses a claim that could not be redeemed.
func (c *Claim) check(body bson.Raw) error {
	if body != nil {
		return errors.New("the change has both a body and a claim check")
	}
	_, err := readClaim(properties{propClaimBlob: c.Blob, propClaimSize: c.Size, propClaimSHA256: c.SHA256})
	return err
}

func readClaim(p properties) (*Claim, error) {
	for _, name := range []string{propClaimBlob, propClaimSize, propClaimSHA256} {
		if _, ok := p[name]; !ok {
			return nil, missing(name)
		}
	}
	c := &Claim{Blob: p.text(propClaimBlob), Size: p.number(propClaimSize), SHA256: strings.ToLower(p.text(propClaimSHA256))}
	digest, err := hex.DecodeString(c.SHA256)
	switch {
	case c.Blob == "":
		return nil, invalid(propClaimBlob, "is not a blob's name", nil)
	case c.Size < 1:
		return nil, invalid(propClaimSize, "is not a positive number", nil)
	case err != nil || len(digest) != sha256.Size:
		return nil, invalid(propClaimSHA256, "is not a SHA-256 in hex", err)
	}
	return c, nil
}
