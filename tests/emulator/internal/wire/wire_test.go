package wire

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func doc(t testing.TB, d bson.D) bson.Raw {
	t.Helper()
	b, err := bson.Marshal(d)
	require.NoError(t, err)
	return b
}

func msg(t testing.TB, flags uint32, sections ...[]byte) []byte {
	t.Helper()
	b := appendHeader(nil, 7, 0, OpMsg)
	b = binary.LittleEndian.AppendUint32(b, flags)
	for _, s := range sections {
		b = append(b, s...)
	}
	return finish(b, 0)
}

func sequence(name string, docs ...bson.Raw) []byte {
	b := append([]byte{0, 0, 0, 0}, name...)
	b = append(b, 0)
	for _, d := range docs {
		b = append(b, d...)
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)))
	return append([]byte{1}, b...)
}

func TestReadMsgWithSequence(t *testing.T) {
	body, one, two := doc(t, bson.D{{Key: "insert", Value: "c"}}), doc(t, bson.D{{Key: "_id", Value: 1}}), doc(t, bson.D{{Key: "_id", Value: 2}})
	b := msg(t, MoreToCome, append([]byte{0}, body...), sequence("documents", one, two))
	r := bytes.NewReader(append(b, msg(t, ChecksumPresent, append([]byte{0}, body...), []byte{1, 2, 3, 4})...))
	m, err := Read(r)
	require.NoError(t, err)
	require.Equal(t, &Message{RequestID: 7, OpCode: OpMsg, Flags: MoreToCome, Body: body, Sequences: []Sequence{{"documents", []bson.Raw{one, two}}}}, m)
	m, err = Read(r)
	require.NoError(t, err)
	require.Equal(t, body, m.Body)
	_, err = Read(r)
	require.ErrorIs(t, err, io.EOF)
}

func TestReadRefusesMalformed(t *testing.T) {
	body := append([]byte{0}, doc(t, bson.D{})...)
	short := msg(t, 0, body)
	binary.LittleEndian.PutUint32(short, 10)
	huge := msg(t, 0, body)
	binary.LittleEndian.PutUint32(huge, MaxMessage+1)
	for name, b := range map[string][]byte{
		"length below the header": short, "length above the limit": huge, "no body": msg(t, 0), "two bodies": msg(t, 0, body, body),
		"unknown flag": msg(t, 4, body), "unknown section": msg(t, 0, body, []byte{9, 0}), "sequence too long": msg(t, 0, body, []byte{1, 99, 0, 0, 0, 'x', 0}),
		"unnamed sequence": msg(t, 0, body, []byte{1, 6, 0, 0, 0, 'x', 'y'}), "document too long": msg(t, 0, []byte{0, 99, 0, 0, 0, 0}),
		"compressed": finish(appendHeader(nil, 1, 0, OpCompressed), 0),
	} {
		_, err := Read(bytes.NewReader(b))
		require.ErrorIs(t, err, ErrMalformed, name)
	}
}

func FuzzRead(f *testing.F) {
	body := append([]byte{0}, doc(f, bson.D{{Key: "ping", Value: 1}})...)
	f.Add(msg(f, 0, body))
	f.Add(msg(f, ChecksumPresent, body, sequence("documents", doc(f, bson.D{})), []byte{1, 2, 3, 4}))
	f.Add(finish(append(appendHeader(nil, 1, 0, OpQuery), "\x04\x00\x00\x00admin.$cmd\x00\x00\x00\x00\x00\xff\xff\xff\xff\x05\x00\x00\x00\x00"...), 0))
	f.Fuzz(func(_ *testing.T, b []byte) {
		r := bytes.NewReader(b)
		for {
			if _, err := Read(r); err != nil {
				return
			}
		}
	})
}
