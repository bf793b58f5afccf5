package envelope_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// claimed returns a change whose body is kept elsewhere.
func claimed(c envelope.Change) envelope.Change {
	claim := envelope.NewClaim(c)
	c.Claim, c.Body = &claim, nil
	return c
}

func TestAClaimIsDecodedAndRedeemed(t *testing.T) {
	for _, format := range []envelope.Format{envelope.JSON, envelope.BSON} {
		want := insert(t)
		m, err := envelope.Encode(claimed(want), format)
		require.NoError(t, err)
		require.Empty(t, m.Body)
		got, err := envelope.Decode(received(m))
		require.NoError(t, err)
		require.Nil(t, got.Body)
		require.NoError(t, got.Redeem(want.Body))
		want.Token, want.MessageID = "", envelope.MessageID(want.Stream, want.Token)
		require.Equal(t, want, got)
	}
}

// G3: a change that is published again is kept under the same name; another body of it is kept
// beside, not in its place.
func TestG3TheNameOfAClaimDependsOnTheChangeAndItsBody(t *testing.T) {
	first, again := insert(t), insert(t)
	again.Epoch, again.TraceParent = 99, ""
	require.Equal(t, envelope.NewClaim(first), envelope.NewClaim(again))
	again.Body = raw(t, bson.D{{Key: "looked up", Value: "later"}})
	require.NotEqual(t, envelope.NewClaim(first).Blob, envelope.NewClaim(again).Blob)
	again = insert(t)
	again.Token = "8263A1B2FF"
	require.NotEqual(t, envelope.NewClaim(first).Blob, envelope.NewClaim(again).Blob)
}

// G6: a reader from before there were claim checks knows two content types, and refuses any other
// by name.
func TestG6AnEarlierReaderRefusesAClaimByItsContentType(t *testing.T) {
	m, err := envelope.Encode(claimed(insert(t)), envelope.JSON)
	require.NoError(t, err)
	require.NotContains(t, []string{string(envelope.JSON), string(envelope.BSON)}, *m.ContentType)
	require.True(t, strings.HasPrefix(*m.ContentType, "application/vnd.sluice."))
}

// G6: a body that differs from the stored one is refused, and not applied.
func TestG6AnotherBodyIsNotRedeemed(t *testing.T) {
	body := insert(t).Body
	flipped := bytes.Clone(body)
	flipped[len(flipped)/2] ^= 1
	for name, other := range map[string][]byte{
		"nothing": nil, "half": body[:len(body)/2], "more": append(bytes.Clone(body), 0), "a flipped bit": flipped,
	} {
		t.Run(name, func(t *testing.T) {
			c := claimed(insert(t))
			refusal, ok := errors.AsType[*envelope.Error](c.Redeem(other))
			require.True(t, ok)
			require.Equal(t, envelope.ReasonClaimCorrupt, refusal.Reason)
			require.Nil(t, c.Body)
		})
	}
	t.Run("no BSON", func(t *testing.T) {
		garbage := insert(t)
		garbage.Body = []byte("garbage")
		c := claimed(garbage)
		refusal, ok := errors.AsType[*envelope.Error](c.Redeem([]byte("garbage")))
		require.True(t, ok)
		require.Equal(t, envelope.ReasonUndecodableBody, refusal.Reason)
	})
}

func TestG6AClaimThatCannotBeReadIsRefusedWithItsReason(t *testing.T) {
	for name, test := range map[string]struct {
		property string
		value    any
		reason   envelope.Reason
	}{
		"no blob":          {"claim_blob", nil, envelope.ReasonMissingProperty},
		"no size":          {"claim_size", nil, envelope.ReasonMissingProperty},
		"no hash":          {"claim_sha256", nil, envelope.ReasonMissingProperty},
		"an empty blob":    {"claim_blob", "", envelope.ReasonInvalidProperty},
		"a size of text":   {"claim_size", "7", envelope.ReasonInvalidProperty},
		"a size of zero":   {"claim_size", int64(0), envelope.ReasonInvalidProperty},
		"a short hash":     {"claim_sha256", "abcd", envelope.ReasonInvalidProperty},
		"a hash of no hex": {"claim_sha256", strings.Repeat("x", 64), envelope.ReasonInvalidProperty},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := envelope.Encode(claimed(insert(t)), envelope.JSON)
			require.NoError(t, err)
			if test.value == nil {
				delete(m.ApplicationProperties, test.property)
			} else {
				m.ApplicationProperties[test.property] = test.value
			}
			_, err = envelope.Decode(received(m))
			refusal, ok := errors.AsType[*envelope.Error](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, test.reason, refusal.Reason)
			require.Contains(t, refusal.Description, test.property)
		})
	}
	both := insert(t)
	claim := envelope.NewClaim(both)
	both.Claim = &claim
	_, err := envelope.Encode(both, envelope.JSON)
	require.Error(t, err, "a body and a claim")
}
