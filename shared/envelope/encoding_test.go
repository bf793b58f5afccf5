package envelope_test

import (
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// G6: an encoding of a newer version is distinguished from those that this version reads, and from
// messages that are not Sluice's.
func TestG6UnknownEncoding(t *testing.T) {
	for contentType, want := range map[string]bool{
		"application/cloudevents-batch+json":                true, // without a list of its events
		"Application/CloudEvents-Batch+JSON; charset=utf-8": true,
		"application/vnd.sluice.pack-of-tomorrow":           true,
		"application/vnd.sluice.claim-check":                false,
		"application/vnd.sluice.row+json":                   false,
		"application/vnd.sluice.row+bson":                   false,
		"application/vnd.sluice.row-claim-check":            false,
		"application/json":                                  false,
		"application/bson":                                  false,
		"text/plain":                                        false,
		";":                                                 false,
	} {
		_, unknown := envelope.UnknownEncoding(&azservicebus.ReceivedMessage{ContentType: &contentType})
		require.Equal(t, want, unknown, contentType)
	}
	_, unknown := envelope.UnknownEncoding(&azservicebus.ReceivedMessage{})
	require.False(t, unknown)
	_, unknown = envelope.UnknownEncoding(received(pack(t, bucketed(t, 2, envelope.JSON)...)))
	require.False(t, unknown, "a pack that lists its events")
}
