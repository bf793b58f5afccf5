package envelope_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// G2: the sessions are pinned: another version that put an aggregate elsewhere would break its
// order.
func TestG2ABucketNeverChanges(t *testing.T) {
	for _, golden := range []struct {
		key                envelope.SessionKey
		aggregate, session string
	}{
		{envelope.SessionKey{}, "order-1", "order-1"},
		{envelope.Buckets(1), "order-1", "bucket-0"},
		{envelope.Buckets(16), "order-1", "bucket-12"},
		{envelope.Buckets(16), "order-2", "bucket-3"},
		{envelope.Buckets(64), "order-1", "bucket-12"},
		{envelope.Buckets(1000), "order-1", "bucket-396"},
		{envelope.Buckets(65536), "6560f3a1b2c3d4e5f6a7b8c9", "bucket-25059"},
		{envelope.Buckets(16), "größe/42", "bucket-14"},
	} {
		require.Equal(t, golden.session, golden.key.Session(golden.aggregate), "%s of %s", golden.aggregate, golden.key)
	}
}

func TestBucketsAreFilledEvenly(t *testing.T) {
	const buckets, aggregates = 32, 32_000
	filled := map[string]int{}
	for n := range aggregates {
		filled[envelope.Buckets(buckets).Session(fmt.Sprintf("a%06d", n))]++
	}
	require.Len(t, filled, buckets)
	for session, n := range filled {
		require.InDelta(t, aggregates/buckets, n, aggregates/buckets/5, session)
	}
}

func TestSessionKeyReadsWhatItWrites(t *testing.T) {
	for _, text := range []string{"aggregate", "bucket:1", "bucket:64", "bucket:65536"} {
		var k envelope.SessionKey
		require.NoError(t, k.UnmarshalText([]byte(text)))
		require.Equal(t, text, k.String())
	}
	for _, text := range []string{"", "Aggregate", "bucket", "bucket:", "bucket:0", "bucket:-1", "bucket:016", "bucket:65537", "bucket:x", "16"} {
		var k envelope.SessionKey
		require.Error(t, k.UnmarshalText([]byte(text)), text)
		require.Zero(t, k)
	}
}
