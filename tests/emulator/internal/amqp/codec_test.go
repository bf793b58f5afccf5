package amqp

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"
)

func TestValuesRoundTrip(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, v := range []any{
		nil, true, false, uint8(200), uint16(60000), uint32(0), uint32(255), uint32(math.MaxUint32),
		uint64(0), uint64(255), uint64(math.MaxUint64), int8(-1), int16(-300), int32(-128), int32(math.MinInt32),
		int64(127), int64(math.MinInt64), float32(1.5), math.Pi, time.UnixMilli(-5).UTC(),
		UUID{1, 2, 3},
		"", "short", long, Symbol("sym"), Symbol(long),
		[]byte{},
		[]byte(long),
		[]any{},
		[]any{"a", int32(1), nil},
		map[any]any{"k": []any{uint64(1)}, Symbol("s"): nil},
		Described{Descriptor: uint64(0x24), Value: []any{}},
		Raw{Code: codeChar, Bytes: "\x00\x00\x00a"},
		Array{"a", "b"},
		Array{int64(1), int64(2)},
		Array{UUID{9}},
		Array{Symbol("x")},
	} {
		b, err := AppendAny(nil, v)
		require.NoError(t, err)
		r := NewReader(b)
		got, err := r.Any()
		require.NoError(t, err)
		require.Equal(t, v, got)
		require.Zero(t, r.Len())
		r = NewReader(b)
		require.NoError(t, r.Skip())
		require.Zero(t, r.Len(), "skipping %v", v)
	}
}

func TestUnknownGoTypesAreRefused(t *testing.T) {
	_, err := AppendAny(nil, struct{}{})
	require.Error(t, err)
	_, err = AppendAny(nil, []any{make(chan int)})
	require.Error(t, err)
}

func TestDeclaredSizesAreCheckedBeforeAllocation(t *testing.T) {
	for name, b := range map[string][]byte{
		"binary of 4 GB":          {codeBin32, 0xff, 0xff, 0xff, 0xff},
		"list of 4 G elements":    {codeList32, 0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff},
		"array of 4 G nulls":      {codeArray32, 0, 0, 0, 5, 0xff, 0xff, 0xff, 0xff, codeNull},
		"map of odd count":        {codeMap8, 2, 1, codeNull},
		"truncated ulong":         {codeUlong, 1, 2},
		"unknown code":            {0x3f},
		"described without value": {codeDescribed, codeSmallUlong, 1},
		"map keyed by a list":     {codeMap8, 3, 2, codeList0, codeNull},
		"empty":                   {},
	} {
		_, err := NewReader(b).Any()
		require.ErrorIs(t, err, ErrMalformed, name)
	}
}

func TestDeepNestingIsRefused(t *testing.T) {
	v := any("end")
	for range maxDepth + 2 {
		v = []any{v}
	}
	b, err := AppendAny(nil, v)
	require.NoError(t, err)
	_, err = NewReader(b).Any()
	require.ErrorIs(t, err, ErrMalformed)
	described := []byte{}
	for range 10_000 {
		described = append(described, codeDescribed)
	}
	_, err = NewReader(described).Any()
	require.ErrorIs(t, err, ErrMalformed)
	require.ErrorIs(t, NewReader(described).Skip(), ErrMalformed)
}

func clientMessage() *goamqp.Message {
	id, group, subject, reply, content := "id", "session", "subject", "reply-to", "application/json"
	return &goamqp.Message{
		Header:      &goamqp.MessageHeader{Durable: true, Priority: 7, TTL: time.Minute},
		Annotations: goamqp.Annotations{"x-opt-partition-key": "session"},
		Properties: &goamqp.MessageProperties{
			MessageID: id, GroupID: &group, Subject: &subject, ReplyTo: &reply, ContentType: &content, CorrelationID: uint64(9),
		},
		ApplicationProperties: map[string]any{"epoch": int64(4)},
		Data:                  [][]byte{[]byte("one"), []byte(strings.Repeat("two", 200))},
		Footer:                goamqp.Annotations{"sum": "x"},
	}
}

func TestMessagesOfTheClientLibraryAreUnderstood(t *testing.T) {
	b, err := clientMessage().MarshalBinary()
	require.NoError(t, err)
	m, err := ParseMessage(b)
	require.NoError(t, err)
	require.True(t, m.Durable)
	require.Equal(t, uint8(7), m.Priority)
	require.Equal(t, time.Minute, m.TTL)
	require.Equal(t, map[string]any{"x-opt-partition-key": "session"}, m.Annotations)
	require.Equal(t, Properties{
		MessageID: "id", ReplyTo: "reply-to", CorrelationID: uint64(9), Subject: "subject",
		ContentType: "application/json", GroupID: "session", HasGroupID: true,
	}, m.Properties)
	app, err := m.ApplicationProperties()
	require.NoError(t, err)
	require.Equal(t, map[string]any{"epoch": int64(4)}, app)
	var data []string
	require.NoError(t, m.EachData(func(b []byte) error { data = append(data, string(b)); return nil }))
	require.Equal(t, []string{"one", strings.Repeat("two", 200)}, data)
}

func TestTheClientLibraryUnderstandsOurMessages(t *testing.T) {
	sent := clientMessage()
	b, err := sent.MarshalBinary()
	require.NoError(t, err)
	m, err := ParseMessage(b)
	require.NoError(t, err)
	bare, err := RewriteBare(m.Bare(), map[string]any{"DeadLetterReason": "why"})
	require.NoError(t, err)
	out := AppendHeader(nil, true, 7, time.Minute, 3)
	d := BeginDeliveryAnnotations(out)
	d.UUID("x-opt-lock-token", UUID{1})
	a := BeginAnnotations(d.End())
	a.Long("x-opt-sequence-number", 1<<40)
	a.Int("x-opt-message-state", 1)
	a.Time("x-opt-enqueued-time", time.UnixMilli(5))
	a.String("x-opt-partition-key", "session")
	out = append(a.End(), bare...)

	var got goamqp.Message
	require.NoError(t, got.UnmarshalBinary(out))
	require.Equal(t, &goamqp.MessageHeader{Durable: true, Priority: 7, TTL: time.Minute, DeliveryCount: 3}, got.Header)
	require.Equal(t, goamqp.Annotations{"x-opt-lock-token": goamqp.UUID{1}}, got.DeliveryAnnotations)
	require.Equal(t, goamqp.Annotations{
		"x-opt-sequence-number": int64(1 << 40), "x-opt-message-state": int32(1),
		"x-opt-enqueued-time": time.UnixMilli(5), "x-opt-partition-key": "session",
	}, got.Annotations)
	require.Equal(t, map[string]any{"epoch": int64(4), "DeadLetterReason": "why"}, got.ApplicationProperties)
	require.Equal(t, sent.Properties, got.Properties)
	require.Equal(t, sent.Data, got.Data)
	require.Equal(t, sent.Footer, got.Footer)
}

func TestMessageSectionsMustBeInOrder(t *testing.T) {
	data := []byte{codeDescribed, codeSmallUlong, sectionData, codeBin8, 1, 'x'}
	properties := []byte{codeDescribed, codeSmallUlong, sectionProperties, codeList0}
	footer := []byte{codeDescribed, codeSmallUlong, sectionFooter, codeMap8, 1, 0}
	_, err := ParseMessage(append(append([]byte{}, properties...), data...))
	require.NoError(t, err)
	for name, b := range map[string][]byte{
		"two early footers":     slices.Concat(footer, footer, data),
		"a footer, twice":       slices.Concat(footer, data, footer),
		"properties after data": append(append([]byte{}, data...), properties...),
		"properties twice":      append(append([]byte{}, properties...), properties...),
		"unknown section":       {codeDescribed, codeSmallUlong, 0x60, codeList0},
		"text as data":          {codeDescribed, codeSmallUlong, sectionData, codeStr8, 1, 'x'},
		"garbage":               []byte("garbage"),
	} {
		_, err := ParseMessage(b)
		require.ErrorIs(t, err, ErrMalformed, name)
	}
}

// rhea sends the footer before the body.
func TestAFooterBeforeTheBodyIsMovedBehindIt(t *testing.T) {
	data := []byte{codeDescribed, codeSmallUlong, sectionData, codeBin8, 1, 'x'}
	properties := []byte{codeDescribed, codeSmallUlong, sectionProperties, codeList0}
	header := []byte{codeDescribed, codeSmallUlong, sectionHeader, codeList0}
	footer := []byte{codeDescribed, codeSmallUlong, sectionFooter, codeMap8, 1, 0}
	for name, rest := range map[string][]byte{"data": data, "two of data": slices.Concat(data, data)} {
		want, err := ParseMessage(slices.Concat(header, properties, rest, footer))
		require.NoError(t, err)
		got, err := ParseMessage(slices.Concat(header, properties, footer, rest))
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
		require.Equal(t, slices.Concat(properties, rest, footer), got.Bare(), name)
		n := 0
		require.NoError(t, got.EachData(func([]byte) error { n++; return nil }))
		require.Equal(t, len(rest)/len(data), n, name)
	}
}
