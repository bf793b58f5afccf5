package envelope_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// roundTrip encodes and decodes a body, and gives the content type on the way.
func roundTrip(t testing.TB, body bson.Raw, format envelope.Format) (contentType string) {
	t.Helper()
	c := insert(t)
	c.Body = body
	m, err := envelope.Encode(c, format)
	require.NoError(t, err)
	if *m.ContentType == string(envelope.JSON) {
		const canonical, escapeHTML = true, false
		want, err := bson.MarshalExtJSON(body, canonical, escapeHTML)
		require.NoError(t, err)
		if string(m.Body) != string(want) {
			t.Fatalf("the driver writes something else:\n%s\n%s", want, m.Body)
		}
	}
	got, err := envelope.Decode(received(m))
	require.NoError(t, err, "%x", []byte(body))
	if string(got.Body) != string(body) { // an assertion would format both every time
		t.Fatalf("the body has changed, as %s:\n%v\n%x\n%v\n%x", *m.ContentType, body, []byte(body), got.Body, []byte(got.Body))
	}
	return *m.ContentType
}

// G6: what JSON would change is sent as BSON: fields that are named like Extended JSON's own, text
// that is not UTF-8, numbers with several forms.
func TestG6ABodyThatJSONWouldChangeIsSentAsBSON(t *testing.T) {
	id := bson.NewObjectID()
	for name, test := range map[string]struct {
		value any
		json  bool
	}{
		"a saved filter":           {bson.D{{Key: "name", Value: bson.D{{Key: "$regex", Value: "^a"}, {Key: "$options", Value: "i"}}}}, true},
		"a reference":              {bson.D{{Key: "$ref", Value: "users"}, {Key: "$id", Value: id}}, true},
		"a literal $numberInt":     {bson.D{{Key: "$numberInt", Value: "5"}}, false},
		"a literal $oid":           {bson.D{{Key: "$oid", Value: id.Hex()}}, false},
		"a literal $date":          {bson.D{{Key: "$date", Value: "2020-01-01T00:00:00Z"}}, false},
		"an invalid $date":         {bson.D{{Key: "$date", Value: bson.D{{Key: "x", Value: 1}}}}, false},
		"a filter by $type":        {bson.D{{Key: "$type", Value: "string"}}, true},
		"an invalid $binary":       {bson.D{{Key: "$binary", Value: "x"}}, false},
		"an invalid $timestamp":    {bson.D{{Key: "$timestamp", Value: "x"}}, false},
		"a $code":                  {bson.D{{Key: "$code", Value: "x"}}, false},
		"a $minKey":                {bson.D{{Key: "$minKey", Value: 1}}, false},
		"a $ behind other fields":  {bson.D{{Key: "a", Value: 1}, {Key: "$oid", Value: "x"}}, true},
		"text that is not UTF-8":   {"a\xffb", false},
		"a name that is not UTF-8": {bson.D{{Key: "a\xffb", Value: 1}}, false},
		"a surrogate":              {"\xed\xa0\x80", false},
		"another NaN":              {math.Copysign(math.NaN(), -1), false},
		"an infinity of decimals":  {bson.NewDecimal128(0x7800000000000001, 5), false},
		"a decimal too large":      {bson.NewDecimal128(0x6C10000000000000, 1), false},
		"everything else": {bson.A{
			math.Copysign(0, -1), math.Inf(1), 5e-324, math.MaxFloat64, "\x00\u2028\ufffd", bson.DateTime(math.MinInt64),
			bson.Binary{Subtype: 2, Data: []byte{1}},
			bson.Regex{Pattern: "a/\"", Options: "xi"},
			bson.DBPointer{DB: "a.b", Pointer: id},
			bson.Symbol("s"), bson.JavaScript("x"),
			bson.Undefined{},
			bson.CodeWithScope{Code: "x", Scope: bson.D{{Key: "a", Value: 1}}},
			bson.MinKey{},
			bson.MaxKey{},
			nil,
			bson.D{{Key: "", Value: bson.A{}}},
			bson.NewDecimal128(0x3040000000000000, 1230),
			bson.D{{Key: "a", Value: 1}, {Key: "a", Value: 2}},
			bson.Timestamp{T: math.MaxUint32, I: math.MaxUint32},
			int64(math.MinInt64), true,
			bson.D{},
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			body := raw(t, bson.D{{Key: "operationType", Value: "insert"}, {Key: "fullDocument", Value: bson.D{{Key: "v", Value: test.value}}}})
			require.Equal(t, string(envelope.BSON), roundTrip(t, body, envelope.BSON))
			want := envelope.BSON
			if test.json {
				want = envelope.JSON
			}
			require.Equal(t, string(want), roundTrip(t, body, envelope.JSON))
		})
	}
	array := bsoncore.NewDocumentBuilder().AppendInt32("7", 1).Build() // an array's names are lost in JSON
	body := bsoncore.NewDocumentBuilder().AppendArray("list", array).Build()
	require.Equal(t, string(envelope.BSON), roundTrip(t, bson.Raw(body), envelope.JSON))
	deep := bson.D{}
	for range 170 {
		deep = bson.D{{Key: "d", Value: deep}}
	}
	roundTrip(t, raw(t, deep), envelope.JSON)
}

// G6: whatever a document holds, it arrives as it was, in either format.
func TestG6AnyBodyArrivesAsItWas(t *testing.T) {
	asJSON := 0
	const documents = 3000
	for seed := range uint64(documents) {
		r := rand.New(rand.NewPCG(seed, 11))
		body := bson.Raw(randomDocument(r, 0, r.IntN(4) == 0))
		roundTrip(t, body, envelope.BSON)
		if roundTrip(t, body, envelope.JSON) == string(envelope.JSON) {
			asJSON++
		}
	}
	t.Logf("%d of %d as JSON", asJSON, documents)
	require.Greater(t, asJSON, documents/2, "JSON is what is asked for")
	require.Less(t, asJSON, documents, "some cannot be")
}

var oddKeys = []string{
	"$oid", "$numberInt", "$numberLong", "$numberDouble", "$numberDecimal", "$binary", "$uuid", "$date", "$timestamp", "$regex", "$options",
	"$regularExpression", "$code", "$scope", "$symbol", "$undefined", "$minKey", "$maxKey", "$ref", "$id", "$db", "$dbPointer", "$type", "$", "$x", "a\xff", "",
}

var oddTexts = []string{"", "\b\f\n\r\t\x01\x1f\x7f<>&/", "5", "NaN", "x", "a\xffb", "\x00", "\u2028\"\\", "2020-01-01T00:00:00Z", "65f1a0b2c3d4e5f601234567", "\xed\xa0\x80", "\U0001F600", "</script>"}

// randomDocument returns a document of random values; an odd one may have fields that look like
// Extended JSON's, and any bits.
func randomDocument(r *rand.Rand, depth int, odd bool) []byte {
	b := bsoncore.NewDocumentBuilder()
	for n := range r.IntN(6) {
		key := fmt.Sprintf("f%d", n)
		if odd && r.IntN(3) == 0 {
			key = oddKeys[r.IntN(len(oddKeys))]
		}
		b.AppendValue(key, randomValue(r, depth, odd))
	}
	return b.Build()
}

func randomValue(r *rand.Rand, depth int, odd bool) bsoncore.Value {
	bits := func(n int) []byte {
		out := make([]byte, 0, n+8)
		for len(out) < n {
			out = binary.LittleEndian.AppendUint64(out, r.Uint64())
		}
		return out[:n]
	}
	text := func() string {
		if odd || r.IntN(2) == 0 {
			if t := oddTexts[r.IntN(len(oddTexts))]; odd || strings.ToValidUTF8(t, "") == t {
				return t
			}
		}
		return fmt.Sprint("text ", r.IntN(1000))
	}
	types := []bsoncore.Type{
		bsoncore.TypeDouble, bsoncore.TypeString, bsoncore.TypeBinary, bsoncore.TypeObjectID, bsoncore.TypeBoolean, bsoncore.TypeDateTime, bsoncore.TypeNull,
		bsoncore.TypeInt32, bsoncore.TypeTimestamp, bsoncore.TypeInt64, bsoncore.TypeDecimal128, bsoncore.TypeMinKey, bsoncore.TypeMaxKey,
		bsoncore.TypeEmbeddedDocument, bsoncore.TypeArray, bsoncore.TypeRegex, bsoncore.TypeJavaScript, bsoncore.TypeSymbol, bsoncore.TypeUndefined,
		bsoncore.TypeDBPointer, bsoncore.TypeCodeWithScope,
	}
	v := bsoncore.Value{Type: types[r.IntN(len(types))]}
	switch v.Type {
	case bsoncore.TypeDouble:
		if v.Data = bits(8); r.IntN(2) == 0 {
			v.Data = bsoncore.AppendDouble(nil, []float64{0, math.Copysign(0, -1), 1, -0.1, math.Inf(1), math.Inf(-1), 1e21, 1e-7, 1 << 53}[r.IntN(9)])
		}
	case bsoncore.TypeInt64, bsoncore.TypeDateTime, bsoncore.TypeTimestamp:
		v.Data = bits(8)
	case bsoncore.TypeDecimal128:
		if v.Data = bits(16); r.IntN(2) == 0 {
			high, low := bson.NewDecimal128(0x3040000000000000-uint64(r.IntN(12000))<<49>>1<<1, uint64(r.IntN(100000))).GetBytes()
			v.Data = bsoncore.AppendDecimal128(nil, high, low)
		}
	case bsoncore.TypeInt32:
		v.Data = bits(4)
	case bsoncore.TypeObjectID:
		v.Data = bits(12)
	case bsoncore.TypeBoolean:
		v.Data = []byte{byte(r.IntN(2))}
	case bsoncore.TypeString, bsoncore.TypeJavaScript, bsoncore.TypeSymbol:
		v.Data = bsoncore.AppendString(nil, text())
	case bsoncore.TypeBinary:
		v.Data = bsoncore.AppendBinary(nil, []byte{0, 2, 3, 4, 5, 0x80, 0xFF}[r.IntN(7)], bits(r.IntN(20)))
	case bsoncore.TypeRegex:
		v.Data = bsoncore.AppendRegex(nil, strings.ReplaceAll(text(), "\x00", ""), []string{"", "i", "xi", "im"}[r.IntN(4)])
	case bsoncore.TypeDBPointer:
		v.Data = append(bsoncore.AppendString(nil, text()), bits(12)...)
	case bsoncore.TypeCodeWithScope:
		v.Data = bsoncore.AppendCodeWithScope(nil, text(), randomDocument(r, depth+1, odd))
	case bsoncore.TypeEmbeddedDocument, bsoncore.TypeArray:
		if depth > 3 {
			return bsoncore.Value{Type: bsoncore.TypeNull}
		}
		if v.Type == bsoncore.TypeEmbeddedDocument {
			v.Data = randomDocument(r, depth+1, odd)
			return v
		}
		a := bsoncore.NewArrayBuilder()
		for range r.IntN(4) {
			a.AppendValue(randomValue(r, depth+1, odd))
		}
		v.Data = a.Build()
	default: // the type is the value
	}
	return v
}
