package envelope_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// bucketed returns n events of several aggregates of one session, encoded.
func bucketed(t testing.TB, n int, format envelope.Format) (messages []*azservicebus.Message) {
	for i := range n {
		c := insert(t)
		c.Session, c.Aggregate = "bucket-3", fmt.Sprintf("a-%d", i%3)
		c.Token, c.Version = fmt.Sprintf("8263A1B2C3%02d", i), int64(i+1)
		c.Position = c.Token
		m, err := envelope.Encode(c, format)
		require.NoError(t, err)
		messages = append(messages, m)
	}
	return messages
}

func pack(t testing.TB, messages ...*azservicebus.Message) *azservicebus.Message {
	var p envelope.Pack
	for _, m := range messages {
		added, err := p.Add(m, 60_000)
		require.NoError(t, err)
		require.True(t, added)
	}
	return p.Message(0)
}

// G3: each event of a pack is read as if it had come alone, in its order.
func TestG3EachEventOfAPackIsReadAsIfAlone(t *testing.T) {
	messages := bucketed(t, 4, envelope.JSON)
	events, isPack := envelope.Unpack(received(pack(t, messages...)))
	require.True(t, isPack)
	require.Len(t, events, len(messages))
	for i, m := range messages {
		require.Equal(t, m.Body, events[i].Body, "the body is kept byte for byte")
		want, err := envelope.Decode(received(m))
		require.NoError(t, err)
		got, err := envelope.Decode(events[i])
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Equal(t, "bucket-3", *events[i].SessionID)
		require.Equal(t, uint32(2), events[i].DeliveryCount)
	}
	_, isPack = envelope.Unpack(received(messages[0]))
	require.False(t, isPack)
}

func TestAPackIsBatchFormatOfCloudEvents(t *testing.T) {
	m := pack(t, bucketed(t, 2, envelope.JSON)...)
	require.Equal(t, "application/cloudevents-batch+json", *m.ContentType)
	require.Equal(t, "bucket-3", *m.SessionID)
	require.Equal(t, "bucket-3", *m.PartitionKey)
	require.True(t, json.Valid(m.Body))
	text := fmt.Sprintf("%s\n%s\n%s\n", *m.MessageID, m.ApplicationProperties["pack"], m.Body)
	file := filepath.Join("testdata", "pack.golden")
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), text)
}

// G1: the broker drops a message whose id it has seen, so packs with different events must differ.
func TestG1IDOfAPackComesFromAllItsEventsAndTheGeneration(t *testing.T) {
	m := bucketed(t, 4, envelope.JSON)
	ids := make(map[string]bool)
	for _, p := range [][]*azservicebus.Message{{m[0], m[1], m[3]}, {m[0], m[2], m[3]}, {m[0], m[3]}} {
		ids[*pack(t, p...).MessageID] = true
	}
	var p envelope.Pack
	for _, m := range []*azservicebus.Message{m[0], m[3]} {
		_, err := p.Add(m, 60_000)
		require.NoError(t, err)
	}
	ids[*p.Message(1).MessageID] = true
	require.Len(t, ids, 4)
	require.Same(t, m[0], pack(t, m[0]), "a pack of one event is its message")
}

// A pack that is refused is sent again as the messages that were put into it.
func TestAPackGivesItsMessagesBack(t *testing.T) {
	messages := bucketed(t, 4, envelope.JSON)
	singles, err := envelope.Singles(pack(t, messages...).Body, "bucket-3", 0)
	require.NoError(t, err)
	require.Equal(t, messages, singles)
}

func TestAPackIsBounded(t *testing.T) {
	messages := bucketed(t, 4, envelope.JSON)
	var p envelope.Pack
	for i, want := range []bool{true, true, false} {
		added, err := p.Add(messages[i], 4*len(messages[0].Body))
		require.NoError(t, err)
		require.Equal(t, want, added)
	}
	require.LessOrEqual(t, len(p.Message(0).Body), 4*len(messages[0].Body))

	long := envelope.Pack{}
	for i := 0; ; i++ {
		c := insert(t)
		c.Aggregate, c.Token = strings.Repeat("x", 6000), fmt.Sprintf("82%02d", i)
		c.Position = c.Token
		m, err := envelope.Encode(c, envelope.JSON)
		require.NoError(t, err)
		added, err := long.Add(m, 1<<20)
		require.NoError(t, err)
		if !added {
			break
		}
	}
	list, _ := long.Message(0).ApplicationProperties["pack"].(string)
	require.LessOrEqual(t, len(list), 24<<10)
	require.Equal(t, 4, long.Len())

	_, err := p.Add(bucketed(t, 1, envelope.BSON)[0], 60_000)
	require.ErrorIs(t, err, envelope.ErrNotPackable)
}

// G5, G6: a pack that cannot be read names all of its aggregates, and an element that cannot be
// read only its own.
func TestG5APackThatCannotBeReadNamesItsAggregates(t *testing.T) {
	whole := pack(t, bucketed(t, 3, envelope.JSON)...)
	body := string(whole.Body)
	for name, damaged := range map[string]string{
		"no JSON":          "garbage",
		"an event less":    body[:strings.LastIndex(body, `,{"specversion"`)] + "]",
		"another position": strings.Replace(body, "8263A1B2C301", "8263A1B2C399", 2),
	} {
		t.Run(name, func(t *testing.T) {
			m := received(whole)
			m.Body = []byte(damaged)
			events, isPack := envelope.Unpack(m)
			require.True(t, isPack)
			for i, e := range events {
				_, err := envelope.Decode(e)
				require.Error(t, err)
				c := envelope.Partial(e)
				require.Equal(t, fmt.Sprintf("a-%d", i), c.Aggregate)
				require.Equal(t, "shop.events", c.Stream)
				require.Equal(t, fmt.Sprintf("8263A1B2C3%02d", i), c.Position)
			}
			require.Len(t, events, 3)
		})
	}
	m := received(whole)
	m.Body = []byte(strings.Replace(body, `"epoch":"3"`, `"epoch":"x"`, 1))
	events, _ := envelope.Unpack(m)
	_, err := envelope.Decode(events[0])
	require.Error(t, err)
	_, err = envelope.Decode(events[1])
	require.NoError(t, err)
}
