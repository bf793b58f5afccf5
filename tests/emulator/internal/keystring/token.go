package keystring

import (
	"encoding/binary"
	"encoding/hex"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// Token is a change stream's resume token. Its hex form sorts in stream order.
type Token struct {
	Version    int // 1: as servers before 7.0 write it; 0 means 2
	Time       bson.Timestamp
	HighWater  bool // no event: the point just before everything at Time
	TxnOp      int  // index within the events that share Time
	Invalidate bool // the invalidate that follows the event with otherwise the same token
	UUID       []byte
	Operation  string
	KeyField   string // "documentKey" or "operationDescription"
	Key        any    // a document, or nil when the event has none
	Fragment   int    // 1 and up: a fragment of a split event; 0: whole
}

// Encode gives the hex data and the type bits, nil when not needed.
func (t Token) Encode() (data string, typeBits []byte) {
	b := Builder{Key: make([]byte, 0, 128)}
	b.Append(t.Time)
	old := t.Version == 1
	if old {
		b.Append(1)
	} else {
		b.Append(2)
	}
	if t.HighWater {
		b.Append(0)
	} else {
		b.Append(128)
	}
	b.Append(t.TxnOp)
	b.Append(t.Invalidate)
	switch {
	case t.UUID != nil:
		b.Append(bson.Binary{Subtype: 4, Data: t.UUID})
	case !old || !t.HighWater: // an old high-water mark leaves out what there is not
		b.Append(nil)
	}
	switch {
	case t.HighWater:
	case old:
		if t.Key != nil && t.KeyField == "documentKey" {
			b.Append(t.Key)
		}
		if t.Fragment > 0 {
			b.Append(t.Fragment - 1)
		}
	default:
		b.Key = append(b.Key, tObject)
		b.Field("operationType", t.Operation)
		if t.Key != nil {
			b.Field(t.KeyField, t.Key)
		}
		b.Key = append(b.Key, 0)
		if t.Fragment > 0 {
			b.Append(t.Fragment - 1)
		}
	}
	b.Key = append(b.Key, tEnd)
	out := make([]byte, hex.EncodedLen(len(b.Key)))
	const digits = "0123456789ABCDEF"
	for i, c := range b.Key {
		out[2*i], out[2*i+1] = digits[c>>4], digits[c&15]
	}
	return string(out), b.TypeBits()
}

// Doc returns the token as a client sees it: {_data: …, _typeBits: …}.
func (t Token) Doc() bson.Raw {
	data, bits := t.Encode()
	d := bson.D{{Key: "_data", Value: data}}
	if bits != nil {
		d = append(d, bson.E{Key: "_typeBits", Value: bson.Binary{Data: bits}})
	}
	return value.Encode(d)
}

// HighWaterMark returns the token of a moment, before any event of that moment.
func HighWaterMark(at bson.Timestamp) Token { return Token{Time: at, HighWater: true} }

// Parsed is the part of a token that resuming needs; Data identifies the event exactly.
type Parsed struct {
	Version    int
	Data       string
	Time       bson.Timestamp
	HighWater  bool
	TxnOp      int64
	Invalidate bool
	HasUUID    bool
}

// Parse reads a client's token document. Errors: FailedToParse when _data is not
// hex, InvalidResumeToken when the bytes are no token of a known version.
func Parse(d bson.D) (Parsed, error) {
	v, _ := value.Get(d, "_data")
	data, ok := v.(string)
	if !ok {
		return Parsed{}, mongoerr.New(mongoerr.TypeMismatch, "the resume token has no string field '_data'")
	}
	raw, err := hex.DecodeString(data)
	if err != nil {
		return Parsed{}, mongoerr.New(mongoerr.FailedToParse, "resume token string was not a valid hex string")
	}
	bad := mongoerr.New(mongoerr.InvalidResumeToken, "bad resume token: not a token of version 1 or 2: %s", data)
	r := reader{b: raw}
	if r.byte() != tTimestamp {
		return Parsed{}, bad
	}
	if raw[len(raw)-1] != tEnd {
		return Parsed{}, mongoerr.New(mongoerr.Overflow, "resume token: KeyString cut off: %s", data)
	}
	p := Parsed{Data: strings.ToUpper(data), Time: bson.Timestamp{T: r.uint32(), I: r.uint32()}}
	version, kind := r.int(), r.int()
	p.TxnOp = r.int()
	switch r.byte() {
	case tTrue:
		p.Invalidate = true
	case tFalse:
	default:
		return Parsed{}, bad
	}
	p.HighWater, p.Version = kind == 0, int(version)
	if r.bad || (version != 1 && version != 2) || (kind != 0 && kind != 128) || p.TxnOp < 0 {
		return Parsed{}, bad
	}
	switch r.byte() {
	case tBinary:
		p.HasUUID = true
	case tNull:
	case tEnd:
		if p.Version != 1 || !p.HighWater || len(r.b) > 0 {
			return Parsed{}, bad
		}
	default:
		return Parsed{}, bad
	}
	return p, nil
}

type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if len(r.b) < n {
		r.bad, r.b = true, nil
		return make([]byte, n)
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) byte() byte     { return r.take(1)[0] }
func (r *reader) uint32() uint32 { return binary.BigEndian.Uint32(r.take(4)) }

func (r *reader) int() int64 {
	t := r.byte()
	if t == tZero {
		return 0
	}
	if t < tPos1 || t >= tPosHuge {
		r.bad = true
		return -1
	}
	var n uint64
	for _, c := range r.take(int(t-tPos1) + 1) {
		n = n<<8 | uint64(c)
	}
	return int64(n >> 1)
}
