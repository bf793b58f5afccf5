package checkpoint

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func sample(t *testing.T) Record {
	t.Helper()
	token, err := bson.Marshal(bson.D{
		{Key: "_data", Value: "8263A1B2C3000000012B042C0100296E5A1004"},
		{Key: "_typeBits", Value: bson.Binary{Data: []byte{0x82, 0x40}}},
	})
	require.NoError(t, err)
	return Record{
		Stream: "shop.events", Epoch: 12, Leader: "producer--abc-1",
		Progress: Progress{
			ResumeToken: token, Position: "8263A1B2C3000000012B042C0100296E5A1004",
			ClusterTime: bson.Timestamp{T: 1671541443, I: 1}, Published: 6964,
		},
		HeartbeatAt: time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC),
	}
}

// The golden file is what other versions wrote: it is never changed, only joined by others.
func TestRecordReadsAndWritesTheGoldenForm(t *testing.T) {
	golden, err := os.ReadFile("testdata/record-schema1.json")
	require.NoError(t, err)
	written, err := json.Marshal(sample(t))
	require.NoError(t, err)
	require.JSONEq(t, string(golden), string(written))

	var read Record
	require.NoError(t, json.Unmarshal(golden, &read))
	require.Equal(t, sample(t), read)
}

func TestANewStreamsRecordHasNoToken(t *testing.T) {
	first := Record{Stream: "s", HeartbeatAt: time.Unix(1, 0).UTC()}
	text, err := json.Marshal(first)
	require.NoError(t, err)
	var read Record
	require.NoError(t, json.Unmarshal(text, &read))
	require.Equal(t, first, read)
}

// G6: a blob that is something else is never taken for an empty checkpoint.
func TestG6WhatIsNoRecordIsUnreadable(t *testing.T) {
	for name, text := range map[string]string{
		"no schema":        `{"stream":"s","epoch":1}`,
		"a newer schema":   `{"schema":2,"stream":"s","epoch":1}`,
		"no stream":        `{"schema":1,"epoch":1}`,
		"a negative epoch": `{"schema":1,"stream":"s","epoch":-1}`,
		"a broken token":   `{"schema":1,"stream":"s","epoch":1,"resumeToken":{"_data":{"$oid":1}}}`,
		"a list":           `[]`,
	} {
		t.Run(name, func(t *testing.T) {
			var r Record
			require.ErrorIs(t, json.Unmarshal([]byte(text), &r), ErrUnreadable)
		})
	}
}
