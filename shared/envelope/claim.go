package envelope

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// claimCheck is the content type of a message whose body is kept elsewhere. It is one of its own so that a reader that does
// not know claim checks refuses the message by name, and does not take it for one with an empty body.
const claimCheck = "application/vnd.sluice.claim-check"

// The application properties of a claim check.
const (
	propClaimBlob   = "claim_blob"
	propClaimSize   = "claim_size"
	propClaimSHA256 = "claim_sha256"
)

// Claim says where the body of a change is kept, and how to tell that it is the right one. What is kept is the server's
// BSON, whatever the format of the stream's other messages.
type Claim struct {
	Blob   string // its name in the container that both services are configured with
	Size   int64  // bytes
	SHA256 string // of the bytes, 64 hex digits
}

// NewClaim is the claim to the body of a change. The blob's name tells the change and the content: whoever keeps the same
// body of the same change again keeps it under the same name, and nobody can put another one in its place (a document that
// was looked up again for the change may be another one by then).
func NewClaim(c Change) Claim {
	sum := sha256.Sum256(c.Body)
	digest := hex.EncodeToString(sum[:])
	return Claim{
		Blob: fmt.Sprintf("%s/%s-%s.bson", c.Stream, MessageID(c.Stream, c.Token), digest[:16]),
		Size: int64(len(c.Body)), SHA256: digest,
	}
}

// Redeem gives the change the body that was kept. Errors are an [*Error]: the body is not the one that was claimed, or not BSON.
func (c *Change) Redeem(body []byte) error {
	sum := sha256.Sum256(body)
	switch {
	case c.Claim == nil:
		return errors.New("redeem claim check: the change has none")
	case int64(len(body)) != c.Claim.Size:
		return c.Claim.WrongSize(int64(len(body)))
	case hex.EncodeToString(sum[:]) != c.Claim.SHA256:
		return &Error{ReasonClaimCorrupt, fmt.Sprintf("blob %s holds other bytes than were kept: their SHA-256 is another one", c.Claim.Blob), nil}
	}
	if err := validate(body); err != nil {
		return undecodable("BSON", len(body), err)
	}
	c.Body, c.Claim = body, nil
	return nil
}

// WrongSize is the refusal of a body that has another size than was kept.
func (c *Claim) WrongSize(size int64) *Error {
	return &Error{ReasonClaimCorrupt, fmt.Sprintf("blob %s holds %d bytes where %d were kept", c.Blob, size, c.Size), nil}
}

// check refuses what would not be read.
func (c *Claim) check(body bson.Raw) error {
	if body != nil {
		return errors.New("the change has both a body and a claim check")
	}
	if _, err := readClaim(properties{propClaimBlob: c.Blob, propClaimSize: c.Size, propClaimSHA256: c.SHA256}); err != nil {
		return err
	}
	return nil
}

func (c *Claim) write(p map[string]any) {
	p[propClaimBlob], p[propClaimSize], p[propClaimSHA256] = c.Blob, c.Size, c.SHA256
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
