package envelope_test

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func raw(t testing.TB, v any) bson.Raw {
	t.Helper()
	b, err := bson.Marshal(v)
	require.NoError(t, err)
	return b
}

func insert(t testing.TB) envelope.Change {
	id, err := bson.ObjectIDFromHex("65f1a0b2c3d4e5f601234567")
	require.NoError(t, err)
	amount, err := bson.ParseDecimal128("12.30")
	require.NoError(t, err)
	when := time.Date(2026, 3, 1, 12, 0, 0, 123e6, time.UTC)
	return envelope.Change{
		Stream: "shop.events", Token: "8263A1B2C3", Position: "8263A1B2C3", Epoch: 3,
		Aggregate: "2000000097_00001", Operation: envelope.Insert, Type: "SRM: In Transfer to Execution Syst. (é)", Version: 7,
		Time: when, CorrelationID: "c-1", TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		Body: raw(t, bson.D{
			{Key: "operationType", Value: "insert"},
			{Key: "clusterTime", Value: bson.Timestamp{T: 1700000000, I: 2}},
			{Key: "wallTime", Value: when},
			{Key: "fullDocument", Value: bson.D{
				{Key: "_id", Value: id},
				{Key: "n32", Value: int32(1)},
				{Key: "n64", Value: int64(1)},
				{Key: "double", Value: 1.0},
				{Key: "decimal", Value: amount},
				{Key: "text", Value: "a <b> & \"c\"\u2028"},
				{Key: "null", Value: nil},
				{Key: "binary", Value: bson.Binary{Subtype: 4, Data: []byte("0123456789abcdef")}},
				{Key: "list", Value: bson.A{int32(1), "two"}},
			}},
			{Key: "ns", Value: bson.D{{Key: "db", Value: "shop"}, {Key: "coll", Value: "events"}}},
			{Key: "documentKey", Value: bson.D{{Key: "_id", Value: id}}},
		}),
	}
}

func remove(t testing.TB) envelope.Change {
	return envelope.Change{
		Stream: "shop.events", Token: "8263A1B2C4", Position: "8263A1B2C4", Epoch: 4,
		Aggregate: strings.Repeat("long ", 40), Operation: envelope.Delete, Type: "delete",
		Body: raw(t, bson.D{
			{Key: "operationType", Value: "delete"},
			{Key: "documentKey", Value: bson.D{{Key: "_id", Value: "k"}}},
		}),
	}
}

// wire is a message as the golden files hold it.
type wire struct {
	MessageID, SessionID, PartitionKey, Subject, ContentType string
	CorrelationID                                            *string
	Properties                                               map[string]any
	Body                                                     []byte
	BodyText                                                 string `json:",omitempty"`
}

func toWire(m *azservicebus.Message) wire {
	w := wire{
		*m.MessageID, *m.SessionID, *m.PartitionKey, *m.Subject, *m.ContentType, m.CorrelationID, m.ApplicationProperties, m.Body, "",
	}
	if *m.ContentType == string(envelope.JSON) {
		w.Body, w.BodyText = nil, string(m.Body)
	}
	return w
}

func received(m *azservicebus.Message) *azservicebus.ReceivedMessage {
	return &azservicebus.ReceivedMessage{
		MessageID: *m.MessageID, SessionID: m.SessionID, PartitionKey: m.PartitionKey, Subject: m.Subject,
		ContentType: m.ContentType, CorrelationID: m.CorrelationID, ApplicationProperties: m.ApplicationProperties, Body: m.Body,
		SequenceNumber: new(int64(7)), DeliveryCount: 2,
	}
}

// The golden files pin the encoded form: the revision before this one and the one after it run
// beside it during a rollout. A difference is a break of the contract unless both can read both.
func TestEncodedFormMatchesTheGoldenFiles(t *testing.T) {
	for name, test := range map[string]struct {
		change envelope.Change
		format envelope.Format
	}{
		"insert-json": {insert(t), envelope.JSON}, "insert-bson": {insert(t), envelope.BSON},
		"delete-json": {remove(t), envelope.JSON}, "delete-bson": {remove(t), envelope.BSON},
		"insert-claim": {claimed(insert(t)), envelope.JSON},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := envelope.Encode(test.change, test.format)
			require.NoError(t, err)
			got, err := json.MarshalIndent(toWire(m), "", "  ")
			require.NoError(t, err)
			path := filepath.Join("testdata", name+".json")
			if *update {
				require.NoError(t, os.WriteFile(path, append(got, '\n'), 0o644))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			require.JSONEq(t, string(want), string(got))
		})
	}
}

func TestWhatIsEncodedIsDecoded(t *testing.T) {
	for _, format := range []envelope.Format{envelope.JSON, envelope.BSON} {
		for _, change := range []envelope.Change{insert(t), remove(t)} {
			m, err := envelope.Encode(change, format)
			require.NoError(t, err)
			got, err := envelope.Decode(received(m))
			require.NoError(t, err)
			want := change
			want.Token, want.MessageID = "", envelope.MessageID(change.Stream, change.Token)
			require.Equal(t, want, got)
		}
	}
}

// The other revision's library may choose other integer widths, and may add what this one does not
// know.
func TestDecodeReadsItsNeighboursMessages(t *testing.T) {
	m, err := envelope.Encode(insert(t), envelope.BSON)
	require.NoError(t, err)
	m.ApplicationProperties["epoch"] = int32(3)
	m.ApplicationProperties["version"] = int32(7)
	m.ApplicationProperties["a_later_invention"] = []byte{1}
	r := received(m)
	contentType := "application/bson; charset=binary"
	r.ContentType = &contentType
	got, err := envelope.Decode(r)
	require.NoError(t, err)
	require.Equal(t, int64(3), got.Epoch)
	require.Equal(t, int64(7), got.Version)
}

// G6: what cannot be read is refused with a reason that names what is wrong, and never guessed.
func TestG6WhatCannotBeReadIsRefusedWithItsReason(t *testing.T) {
	type m = azservicebus.ReceivedMessage
	property := func(name string, value any) func(*m) {
		return func(r *m) { r.ApplicationProperties[name] = value }
	}
	without := func(name string) func(*m) { return func(r *m) { delete(r.ApplicationProperties, name) } }
	contentType := func(s string) func(*m) { return func(r *m) { r.ContentType = &s } }
	for name, test := range map[string]struct {
		spoil  func(*m)
		reason envelope.Reason
		want   string
	}{
		"no properties":         {func(r *m) { r.ApplicationProperties = nil }, envelope.ReasonMissingProperty, "cloudEvents_source"},
		"no position":           {without("position"), envelope.ReasonMissingProperty, "position"},
		"no epoch":              {without("epoch"), envelope.ReasonMissingProperty, "epoch"},
		"no subject":            {without("cloudEvents_subject"), envelope.ReasonMissingProperty, "cloudEvents_subject"},
		"no message id":         {func(r *m) { r.MessageID = "" }, envelope.ReasonMissingProperty, "MessageId"},
		"no content type":       {func(r *m) { r.ContentType = nil }, envelope.ReasonMissingProperty, "ContentType"},
		"an empty position":     {property("position", ""), envelope.ReasonInvalidProperty, "position"},
		"a position of bytes":   {property("position", []byte{1}), envelope.ReasonInvalidProperty, "position"},
		"an epoch of text":      {property("epoch", "3"), envelope.ReasonInvalidProperty, "epoch"},
		"epoch zero":            {property("epoch", int64(0)), envelope.ReasonInvalidProperty, "epoch"},
		"a version of text":     {property("version", "7"), envelope.ReasonInvalidProperty, "version"},
		"an unknown operation":  {property("operation", "merge"), envelope.ReasonInvalidProperty, "merge"},
		"an empty subject":      {property("cloudEvents_subject", ""), envelope.ReasonInvalidProperty, "cloudEvents_subject"},
		"an invalid time":       {property("cloudEvents_time", "yesterday"), envelope.ReasonInvalidProperty, "cloudEvents_time"},
		"another content type":  {contentType("text/plain"), envelope.ReasonUnknownContentType, "text/plain"},
		"a broken content type": {contentType(";"), envelope.ReasonUnknownContentType, "malformed"},
		"a garbage body":        {func(r *m) { r.Body = []byte("garbage") }, envelope.ReasonUndecodableBody, "7 bytes"},
		"an empty body":         {func(r *m) { r.Body = nil }, envelope.ReasonUndecodableBody, "0 bytes"},
		"two bodies":            {func(r *m) { r.Body = append(r.Body, r.Body...) }, envelope.ReasonUndecodableBody, "not valid"},
		"half a body":           {func(r *m) { r.Body = r.Body[:len(r.Body)/2] }, envelope.ReasonUndecodableBody, "not valid"},
		"a body of a list":      {func(r *m) { r.Body = []byte("[1]") }, envelope.ReasonUndecodableBody, "not valid"},
	} {
		for _, format := range []envelope.Format{envelope.JSON, envelope.BSON} {
			t.Run(name+" as "+string(format), func(t *testing.T) {
				message, err := envelope.Encode(insert(t), format)
				require.NoError(t, err)
				r := received(message)
				test.spoil(r)
				_, err = envelope.Decode(r)
				refusal, ok := errors.AsType[*envelope.Error](err)
				require.True(t, ok, "%v", err)
				require.Equal(t, test.reason, refusal.Reason)
				require.Contains(t, refusal.Description, test.want)
			})
		}
	}
}

func TestEncodeRefusesAnIncompleteChange(t *testing.T) {
	for name, spoil := range map[string]func(*envelope.Change){
		"no stream":    func(c *envelope.Change) { c.Stream = "" },
		"no token":     func(c *envelope.Change) { c.Token = "" },
		"no position":  func(c *envelope.Change) { c.Position = "" },
		"no aggregate": func(c *envelope.Change) { c.Aggregate = "" },
		"no operation": func(c *envelope.Change) { c.Operation = "" },
		"no body":      func(c *envelope.Change) { c.Body = nil },
	} {
		t.Run(name, func(t *testing.T) {
			c := insert(t)
			spoil(&c)
			_, err := envelope.Encode(c, envelope.JSON)
			require.Error(t, err)
		})
	}
	_, err := envelope.Encode(insert(t), "text/xml")
	require.ErrorContains(t, err, "text/xml")
}

// G6: the service refuses a text that no property holds with an error that resembles a transient
// one, so the message would be sent again for ever.
func TestG6EncodeRefusesATextThatNoPropertyHolds(t *testing.T) {
	for name, text := range map[string]func(*envelope.Change) *string{
		"aggregate id":   func(c *envelope.Change) *string { return &c.Aggregate },
		"event type":     func(c *envelope.Change) *string { return &c.Type },
		"correlation id": func(c *envelope.Change) *string { return &c.CorrelationID },
		"traceparent":    func(c *envelope.Change) *string { return &c.TraceParent },
		"position":       func(c *envelope.Change) *string { return &c.Position },
	} {
		t.Run(name, func(t *testing.T) {
			c := insert(t)
			*text(&c) = strings.Repeat("x", 8<<10)
			_, err := envelope.Encode(c, envelope.BSON)
			require.NoError(t, err)
			*text(&c) += "x"
			_, err = envelope.Encode(c, envelope.BSON)
			require.ErrorContains(t, err, "the "+name+" has 8193 bytes")
		})
	}
	c := insert(t)
	c.Stream = strings.Repeat("x", 1025)
	_, err := envelope.Encode(c, envelope.BSON)
	require.ErrorContains(t, err, "the stream has 1025 bytes")
	c = insert(t)
	c.Session = strings.Repeat("x", 129)
	_, err = envelope.Encode(c, envelope.BSON)
	require.ErrorContains(t, err, "the session id has 129 characters")
}

// G3: the identity of a change does not depend on who publishes it, or when.
func TestG3MessageIDDependsOnStreamAndTokenAlone(t *testing.T) {
	first, second := insert(t), insert(t)
	second.Epoch, second.TraceParent = 99, ""
	a, err := envelope.Encode(first, envelope.JSON)
	require.NoError(t, err)
	b, err := envelope.Encode(second, envelope.BSON)
	require.NoError(t, err)
	require.Equal(t, *a.MessageID, *b.MessageID)
	require.Len(t, *a.MessageID, 64)
	require.NotEqual(t, envelope.MessageID("s", "t"), envelope.MessageID("s2", "t"))
	require.NotEqual(t, envelope.MessageID("s", "t"), envelope.MessageID("s", "t2"))
}

// G3: a change that is published again after a rewind has another MessageId, or the broker would
// drop it. It stays the same event to every reader: its CloudEvents id, its claim check and its
// position do not change.
func TestG3AGenerationIsPartOfTheMessageIDAlone(t *testing.T) {
	first := insert(t)
	want, err := envelope.Encode(first, envelope.JSON)
	require.NoError(t, err)
	ids := map[string]bool{*want.MessageID: true}
	for generation := int64(1); generation <= 3; generation++ {
		anew := first
		anew.Generation = generation
		m, err := envelope.Encode(anew, envelope.JSON)
		require.NoError(t, err)
		require.Len(t, *m.MessageID, 64)
		require.NotContains(t, ids, *m.MessageID)
		ids[*m.MessageID] = true
		m.MessageID = want.MessageID
		require.Equal(t, want, m)
		require.Equal(t, envelope.NewClaim(first), envelope.NewClaim(anew))
	}
}

func TestSessionIDFitsTheBroker(t *testing.T) {
	require.Equal(t, strings.Repeat("x", 128), envelope.SessionID(strings.Repeat("x", 128)))
	require.Equal(t, strings.Repeat("é", 128), envelope.SessionID(strings.Repeat("é", 128)), "128 units, 256 bytes")
	long := envelope.SessionID(strings.Repeat("x", 129))
	require.True(t, strings.HasPrefix(long, "sha256:"))
	require.Len(t, long, 71)
	require.True(t, strings.HasPrefix(envelope.SessionID(strings.Repeat("😀", 65)), "sha256:"), "130 units in 65 runes")
	require.Equal(t, strings.Repeat("😀", 64), envelope.SessionID(strings.Repeat("😀", 64)))
}

func TestSortable(t *testing.T) {
	require.True(t, envelope.Sortable("8263A1B2C3000000012B042C0100296E5A1004"))
	for _, token := range []string{"", "82", "AeARBpQ/AAAA", "8263a1", "7263A1", "8263A"} {
		require.Equal(t, token == "82", envelope.Sortable(token), token)
	}
}

func FuzzDecode(f *testing.F) {
	for _, format := range []envelope.Format{envelope.JSON, envelope.BSON} {
		m, err := envelope.Encode(insert(f), format)
		require.NoError(f, err)
		f.Add(m.Body, string(format), "insert", "82", int64(1))
	}
	f.Fuzz(func(t *testing.T, body []byte, contentType, operation, position string, epoch int64) {
		_, err := envelope.Decode(&azservicebus.ReceivedMessage{
			MessageID: "m", ContentType: &contentType, Body: body, ApplicationProperties: map[string]any{
				"cloudEvents_source": "sluice:s", "cloudEvents_subject": "a", "cloudEvents_type": "t",
				"operation": operation, "position": position, "epoch": epoch,
			},
		})
		if err != nil {
			_, ok := errors.AsType[*envelope.Error](err)
			require.True(t, ok)
		}
	})
}

// A post-image is marked; a document that was looked up is not, so older messages keep their
// meaning.
func TestAMessageMarksAPostImage(t *testing.T) {
	for _, image := range []bool{true, false} {
		want := insert(t)
		want.Operation, want.PostImage = envelope.Update, image
		m, err := envelope.Encode(want, envelope.JSON)
		require.NoError(t, err)
		_, value := m.ApplicationProperties["document"]
		require.Equal(t, image, value)
		got, err := envelope.Decode(received(m))
		require.NoError(t, err)
		require.Equal(t, image, got.PostImage)
	}
}
