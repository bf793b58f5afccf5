// Package keystring encodes BSON values into MongoDB's KeyString V1 form: bytes
// whose memcmp order is the BSON comparison order. Resume tokens and index keys
// are made of it.
//
// Guaranteed: order, for every type but decimals that no double represents
// (those are keyed by their nearest double); equal numbers of different types
// have equal keys; strings, ObjectIDs, integers, dates, booleans, binaries and
// documents of them are the very bytes a server produces. Not guaranteed: the
// bytes of fractional doubles.
package keystring

import (
	"encoding/binary"
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// Type bytes of KeyString V1.
const (
	tMinKey    = 0x0A
	tUndefined = 0x0F
	tNull      = 0x14
	tNumber    = 0x1E // as a generic type; also the encoding of NaN
	tNegHuge   = 0x1F
	tNeg1      = 0x27 // one byte; each further byte counts down
	tNegSmall  = 0x28
	tZero      = 0x29
	tPosSmall  = 0x2A
	tPos1      = 0x2B // one byte; each further byte counts up
	tPosHuge   = 0x33
	tString    = 0x3C
	tObject    = 0x46
	tArray     = 0x50
	tBinary    = 0x5A
	tObjectID  = 0x64
	tFalse     = 0x6E
	tTrue      = 0x6F
	tDate      = 0x78
	tTimestamp = 0x82
	tRegex     = 0x8C
	tDBPointer = 0x96
	tCode      = 0xA0
	tScope     = 0xAA
	tMaxKey    = 0xF0
	tEnd       = 0x04
)

// Builder accumulates a key and the type bits that would restore its numbers' types.
type Builder struct {
	Key  []byte
	bits []byte
	used int
}

// Append adds one value.
func (b *Builder) Append(v any) {
	switch t := v.(type) {
	case nil, value.Missing, bson.Null:
		b.Key = append(b.Key, tNull)
	case bool:
		if t {
			b.Key = append(b.Key, tTrue)
		} else {
			b.Key = append(b.Key, tFalse)
		}
	case int:
		b.number(float64(t), int64(t), true, 0)
	case int32:
		b.number(float64(t), int64(t), true, 0)
	case int64:
		b.number(float64(t), t, true, 1)
	case float64:
		n, ok := value.AsInt(t)
		b.number(t, n, ok, 2)
	case bson.Decimal128:
		n, ok := value.AsInt(t)
		f, _ := value.AsFloat(t)
		b.number(f, n, ok, 3)
	case string:
		b.bit(0)
		b.text(tString, t)
	case bson.Symbol:
		b.bit(1)
		b.text(tString, string(t))
	case bson.ObjectID:
		b.Key = append(append(b.Key, tObjectID), t[:]...)
	case bson.DateTime:
		b.Key = binary.BigEndian.AppendUint64(append(b.Key, tDate), uint64(t)^1<<63)
	case bson.Timestamp:
		b.Key = append(b.Key, tTimestamp)
		b.Key = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b.Key, t.T), t.I)
	case bson.D:
		b.Key = append(b.Key, tObject)
		for _, e := range t {
			b.Field(e.Key, e.Value)
		}
		b.Key = append(b.Key, 0)
	case bson.A:
		b.Key = append(b.Key, tArray)
		for _, e := range t {
			b.Append(e)
		}
		b.Key = append(b.Key, 0)
	case bson.Binary:
		b.binary(t)
	default:
		b.rare(v)
	}
}

func (b *Builder) rare(v any) {
	switch t := v.(type) {
	case bson.MinKey:
		b.Key = append(b.Key, tMinKey)
	case bson.Undefined:
		b.Key = append(b.Key, tUndefined)
	case bson.Regex:
		b.Key = append(b.Key, tRegex)
		b.Key = append(append(b.Key, t.Pattern...), 0)
		b.Key = append(append(b.Key, t.Options...), 0)
	case bson.DBPointer:
		b.Key = binary.BigEndian.AppendUint32(append(b.Key, tDBPointer), uint32(len(t.DB)))
		b.Key = append(append(b.Key, t.DB...), t.Pointer[:]...)
	case bson.JavaScript:
		b.text(tCode, string(t))
	case bson.CodeWithScope:
		b.text(tScope, string(t.Code))
		scope, _ := t.Scope.(bson.D)
		b.Append(scope)
	default:
		b.Key = append(b.Key, tMaxKey)
	}
}

// Field adds one field of an object that the caller opened: the generic type
// first, as documents compare by type before name.
func (b *Builder) Field(name string, v any) {
	b.Key = append(b.Key, generic(v))
	b.Key = append(append(b.Key, name...), 0)
	b.Append(v)
}

func generic(v any) byte {
	var one Builder
	switch value.Class(v) {
	case 10:
		return tNumber
	case 40:
		return tFalse
	}
	one.Append(v)
	return one.Key[0]
}

func (b *Builder) text(t byte, s string) {
	b.Key = append(b.Key, t)
	for i := range len(s) {
		b.Key = append(b.Key, s[i])
		if s[i] == 0 {
			b.Key = append(b.Key, 0xFF)
		}
	}
	b.Key = append(b.Key, 0)
}

func (b *Builder) binary(v bson.Binary) {
	b.Key = append(b.Key, tBinary)
	if len(v.Data) < 0xFF {
		b.Key = append(b.Key, byte(len(v.Data)))
	} else {
		b.Key = binary.BigEndian.AppendUint32(append(b.Key, 0xFF), uint32(len(v.Data)))
	}
	b.Key = append(append(b.Key, v.Subtype), v.Data...)
}

func (b *Builder) number(f float64, n int64, integral bool, kind byte) {
	b.bit(kind & 1)
	b.bit(kind >> 1)
	neg := f < 0
	start := len(b.Key)
	mag := math.Abs(f)
	switch {
	case math.IsNaN(f):
		b.Key = append(b.Key, tNumber)
		return
	case integral && n == 0:
		b.Key = append(b.Key, tZero)
		return
	case integral && n != math.MinInt64:
		b.integer(uint64(max(n, -n))<<1, neg)
	case mag < 1:
		b.Key = binary.BigEndian.AppendUint64(append(b.Key, pick(neg, tNegSmall, tPosSmall)), math.Float64bits(mag))
	case mag >= 1<<63:
		b.Key = binary.BigEndian.AppendUint64(append(b.Key, pick(neg, tNegHuge, tPosHuge)), math.Float64bits(mag))
	default: // the low bit is set if a fraction follows
		whole, frac := math.Modf(mag)
		b.integer(uint64(whole)<<1|1, neg)
		b.Key = binary.BigEndian.AppendUint64(b.Key, uint64(frac*(1<<63))<<1)
	}
	if neg {
		for i := start + 1; i < len(b.Key); i++ {
			b.Key[i] = ^b.Key[i]
		}
	}
}

func pick(neg bool, a, b byte) byte {
	if neg {
		return a
	}
	return b
}

func (b *Builder) integer(shifted uint64, neg bool) {
	size := 1
	for size < 8 && shifted>>(8*size) != 0 {
		size++
	}
	b.Key = append(b.Key, pick(neg, tNeg1-byte(size-1), tPos1+byte(size-1)))
	for i := size - 1; i >= 0; i-- {
		b.Key = append(b.Key, byte(shifted>>(8*i)))
	}
}

func (b *Builder) bit(v byte) {
	if b.used%8 == 0 {
		b.bits = append(b.bits, 0)
	}
	b.bits[len(b.bits)-1] |= v << (b.used % 8)
	b.used++
}

// TypeBits returns nil when every number has its default type.
func (b *Builder) TypeBits() []byte {
	last := -1
	for i, x := range b.bits {
		if x != 0 {
			last = i
		}
	}
	switch {
	case last < 0:
		return nil
	case len(b.bits) == 1 && b.bits[0] < 0x80:
		return b.bits
	default:
		return append([]byte{0x80 | byte(len(b.bits))}, b.bits...)
	}
}

// Of returns the key of a single value, usable as a map key.
func Of(v any) string {
	var b Builder
	b.Append(v)
	return string(b.Key)
}
