package checkpoint

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
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

// counted returns the sample for a deployment without sortable tokens.
func counted(t *testing.T) Record {
	t.Helper()
	r := sample(t)
	token, err := bson.Marshal(bson.D{{Key: "_data", Value: "AeARBpQ/AAAA"}})
	require.NoError(t, err)
	r.Progress.ResumeToken = token
	r.Progress.Position = "n0000000011.000000000000006964"
	r.Progress.Settings = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
	r.Progress.ClusterTime = bson.Timestamp{}
	return r
}

// rewound returns the sample after two rewinds.
func rewound(t *testing.T) Record {
	t.Helper()
	r := sample(t)
	r.Generation = 2
	return r
}

// translated returns the sample for a stream that began with tokens of version 1, on a server that
// writes version 2.
func translated(t *testing.T) Record {
	t.Helper()
	r := sample(t)
	r.Progress.Position, r.Progress.Translated = strings.Replace(r.Progress.Position, "2B04", "2B02", 1), true
	return r
}

// inSnapshot returns the record of a stream that publishes a chunk of a snapshot.
func inSnapshot(t *testing.T) Record {
	t.Helper()
	keys := func(aggregate string, version int64) bson.Raw {
		raw, err := bson.Marshal(bson.D{{Key: "aggregateId", Value: aggregate}, {Key: "version", Value: version}, {Key: "_id", Value: nil}})
		require.NoError(t, err)
		return raw
	}
	r := translated(t)
	at := bson.Timestamp{T: 1671541443, I: 7}
	r.Progress.Position = envelope.Boundary(at, 12)
	r.Progress.Backfill = &Backfill{
		ID: "6392f1d4a1b2c3d4e5f60718", Mode: BackfillLost, Settings: "2cf24dba5fb0a30e", Form: "2B02", Cursor: keys("a", 3), Repeats: keys("b", 1),
		Chunk: &Chunk{At: at, Base: 10, Count: 5, To: keys("c", 2)}, Rows: 4000, Estimate: 1_000_000,
		BeganAt: time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC), Lost: 1,
	}
	return r
}

// requested returns the record of a stream whose snapshot of single aggregates is paused.
func requested(t *testing.T) Record {
	t.Helper()
	r := inSnapshot(t)
	b := *r.Progress.Backfill
	b.Mode, b.Aggregates, b.Rate, b.Paused, b.AcceptRepeats = BackfillAggregates, []string{"a", "17"}, 100, true, true
	b.ResumedAt, b.ResumedRows = time.Date(2026, 3, 1, 11, 30, 0, 0, time.UTC), 1000
	r.Progress.Backfill = &b
	return r
}

// The golden files were written by other releases: they are never changed, only added to.
func TestRecordReadsAndWritesTheGoldenForms(t *testing.T) {
	bucketed := sample(t)
	bucketed.SessionKey = envelope.Buckets(64)
	read := sample(t)
	read.Fingerprint = MappingFingerprint{
		AggregateIDPath: "order.id", VersionPath: "version", Pipeline: `[{"$unset":"fullDocument.secret"}]`,
		Operations: "insert,update", Updates: "image",
	}
	byValue, both := read, translated(t)
	byValue.Fingerprint.Numbers, both.Fingerprint = NumbersByValue, MappingFingerprint{AggregateIDPath: "_id", Operations: "insert", Numbers: NumbersByValue}
	source := read
	source.AcceptedAt = "8263A1B2C0000000012B042C0100296E5A1004"
	source.Fingerprint.Collection, source.Fingerprint.Entity, source.Fingerprint.Cluster = "shop.events", "changes", "replica set 64b1f0c2a1b2c3d4e5f60718"
	for file, record := range map[string]Record{
		"record-schema5.json": byValue, "record-schema5-translated.json": both,
		"record-schema1.json": sample(t), "record-schema1-reading.json": read, "record-schema1-bucket.json": bucketed, "record-schema2.json": counted(t),
		"record-schema1-source.json": source,
		"record-schema6.json":        inSnapshot(t), "record-schema6-requested.json": requested(t),
		"record-schema3.json": rewound(t), "record-schema4.json": translated(t),
	} {
		t.Run(file, func(t *testing.T) {
			golden, err := os.ReadFile("testdata/" + file)
			require.NoError(t, err)
			written, err := json.Marshal(record)
			require.NoError(t, err)
			require.JSONEq(t, string(golden), string(written))

			var read Record
			require.NoError(t, json.Unmarshal(golden, &read))
			require.Equal(t, record, read)
		})
	}
}

// A stream keeps what a record of schema 5 holds while a snapshot needs schema 6, and its record
// has schema 5 again once the snapshot is complete: the release before can lead then.
func TestASnapshotKeepsWhatARecordOfSchema5Holds(t *testing.T) {
	golden, err := os.ReadFile("testdata/record-schema5-translated.json")
	require.NoError(t, err)
	var before, during, after Record
	require.NoError(t, json.Unmarshal(golden, &before))
	require.True(t, before.Progress.Translated)

	during = before
	during.Progress.Backfill = inSnapshot(t).Progress.Backfill
	text, err := json.Marshal(during)
	require.NoError(t, err)
	require.Contains(t, string(text), `"schema":6`)
	require.NoError(t, json.Unmarshal(text, &after))
	require.Equal(t, during, after)

	after.Progress.Backfill = nil
	text, err = json.Marshal(after)
	require.NoError(t, err)
	require.JSONEq(t, string(golden), string(text))
}

func TestASnapshotContinuesAfterTheStreamWasMoved(t *testing.T) {
	progress := inSnapshot(t).Progress
	begun, chunk := progress.Backfill, progress.Backfill.Chunk
	moved := begun.Interrupted(progress.Position)
	require.Nil(t, moved.Chunk)
	require.Equal(t, chunk.To, moved.Repeats, "some of the chunk's rows are published")
	require.Equal(t, begun.Cursor, moved.Cursor)
	require.Equal(t, begun.Repeats, begun.Interrupted(envelope.Boundary(chunk.At, chunk.Base-1)).Repeats, "none of its rows is published")
	require.NotNil(t, begun.Chunk, "states are not changed")

	initial := *begun
	initial.Mode = BackfillInitial
	require.Equal(t, BackfillLost, initial.Repeated().Mode, "the rows of a copy may have been published")
	require.Equal(t, BackfillAggregates, requested(t).Progress.Backfill.Repeated().Mode, "the others are not read")
	require.Nil(t, (*Backfill)(nil).Interrupted(""))
	require.Nil(t, (*Backfill)(nil).Repeated())
	require.Nil(t, (&Backfill{Done: true}).Interrupted(""), "a complete snapshot does not continue")
}

func TestTheRateOfASnapshotIsMeasuredSinceItWasResumed(t *testing.T) {
	began := time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC)
	b := Backfill{Mode: BackfillLost, BeganAt: began, Rows: 1000, Estimate: 4000}
	perSecond, rest, ok := b.Pace(began.Add(10 * time.Second))
	require.True(t, ok)
	require.Equal(t, 100.0, perSecond)
	require.Equal(t, 30*time.Second, rest)

	b.ResumedAt, b.ResumedRows, b.Rows = began.Add(time.Hour), 1000, 1500
	perSecond, rest, ok = b.Pace(began.Add(time.Hour + 10*time.Second))
	require.True(t, ok)
	require.Equal(t, 50.0, perSecond)
	require.Equal(t, 50*time.Second, rest)

	b.Rows = 5000
	_, rest, _ = b.Pace(began.Add(time.Hour + 10*time.Second))
	require.Zero(t, rest, "there are more documents than were estimated")
	b.Paused = true
	_, _, ok = b.Pace(began.Add(2 * time.Hour))
	require.False(t, ok)
}

func TestASnapshotOfSingleAggregatesLeavesNoChangeOut(t *testing.T) {
	for mode, suppresses := range map[BackfillMode]bool{
		BackfillInitial: true, BackfillLost: true, BackfillRequested: true, BackfillAggregates: false,
	} {
		require.Equal(t, suppresses, (&Backfill{Mode: mode}).Suppresses(), mode)
	}
	require.False(t, (&Backfill{Mode: BackfillLost, Done: true}).Suppresses())
	require.False(t, (*Backfill)(nil).Suppresses())
}

func TestANewStreamsRecordHasNoToken(t *testing.T) {
	first := Record{Stream: "s", HeartbeatAt: time.Unix(1, 0).UTC()}
	text, err := json.Marshal(first)
	require.NoError(t, err)
	var read Record
	require.NoError(t, json.Unmarshal(text, &read))
	require.Equal(t, first, read)
}

// G6: a blob with other content is never taken for an empty checkpoint.
func TestG6AnyOtherContentIsUnreadable(t *testing.T) {
	for name, text := range map[string]string{
		"no schema":             `{"stream":"s","epoch":1}`,
		"a newer schema":        `{"schema":8,"stream":"s","epoch":1}`,
		"no stream":             `{"schema":1,"epoch":1}`,
		"a negative epoch":      `{"schema":1,"stream":"s","epoch":-1}`,
		"a negative generation": `{"schema":3,"stream":"s","epoch":1,"generation":-1}`,
		"a strange key":         `{"schema":1,"stream":"s","epoch":1,"sessionKey":"moon"}`,
		"a broken token":        `{"schema":1,"stream":"s","epoch":1,"resumeToken":{"_data":{"$oid":1}}}`,
		"a list":                `[]`,
	} {
		t.Run(name, func(t *testing.T) {
			var r Record
			require.ErrorIs(t, json.Unmarshal([]byte(text), &r), ErrUnreadable)
		})
	}
}
