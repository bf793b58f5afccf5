package remote

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/projector/projection/memory"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares text with a file of testdata.
func golden(t *testing.T, name string, text []byte) {
	t.Helper()
	require.True(t, json.Valid(text), "%s", text)
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, append(text, '\n'), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, strings.TrimSpace(string(want)), string(text))
}

var (
	someID   = bson.ObjectID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	someTime = time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
)

// everyWrite holds every kind of write, operator, condition and index.
func everyWrite() []projection.Write {
	decimal, _ := bson.ParseDecimal128("12.50")
	document, _ := bson.Marshal(bson.D{
		{Key: "_id", Value: "ann"},
		{Key: "n", Value: bson.A{int32(1), int64(2), 3.5, decimal, nil, true}},
		{Key: "at", Value: someTime},
		{Key: "of", Value: bson.D{{Key: "id", Value: someID}, {Key: "a.b", Value: "x"}}},
		{Key: "raw", Value: bson.Binary{Subtype: 4, Data: make([]byte, 16)}},
		{Key: "t", Value: bson.Timestamp{T: 7, I: 8}},
	})
	return []projection.Write{
		projection.Update("c", "ann",
			projection.Set("a", "x"), projection.Set("data."+projection.EscapeKey("k.e$y%"), int64(5)), projection.SetOnInsert("b", someTime),
			projection.Unset("u"), projection.Inc("n", 2), projection.Add("d", decimal), projection.Add("i", int32(3)), projection.Mul("m", 1.5),
			projection.Min("low", someID), projection.Max("high", bson.Timestamp{T: 1}), projection.Truncate("last", -10),
			projection.AddToSet("tags", "a", bson.D{{Key: "k", Value: int64(1)}}), projection.Pull("tags", "b", nil),
			projection.PullWhere("lines", projection.Eq("sku", "s"), projection.Missing("x"), projection.Gte("n", int64(1)), projection.Lt("n", 9.5)),
			projection.PullWhere("numbers", projection.Gt("", int64(1)), projection.Lte("", int64(5))), projection.Set("", "empty path")),
		projection.UpdateExisting("c", someID, projection.Inc("n", -1)),
		projection.UpdateOne{Collection: "c", ID: int64(7), Upsert: true, InOrder: true, Ops: []projection.Op{projection.Set("a", nil)}},
		projection.Replace("c", bson.D{{Key: "a", Value: int64(1)}, {Key: "b", Value: "2"}}, document),
		projection.Delete("c", 1.5),
		projection.DeleteIf("c", "ann", projection.Lte("orders", int64(0)), projection.Missing("name")),
	}
}

// readBack reads a write that was appended.
func readBack(t *testing.T, w projection.Write) (text []byte, back projection.Write) {
	t.Helper()
	var e encoder
	e.write(w)
	require.NoError(t, e.err, "%#v", w)
	n, err := parse(e.dst)
	require.NoError(t, err, "%s", e.dst)
	back, err = readWrite(n)
	require.NoError(t, err, "%s", e.dst)
	return e.dst, back
}

func TestWritesKeepTheirForm(t *testing.T) {
	all := []byte("[")
	for i, w := range everyWrite() {
		if update, ok := w.(projection.UpdateOne); ok && i == 0 {
			update.Ops = update.Ops[:len(update.Ops)-1] // the empty path has no form
			w = update
		}
		text, back := readBack(t, w)
		require.True(t, memory.Same([]projection.Write{w}, []projection.Write{back}), "%s\n%#v\n%#v", text, w, back)
		if i > 0 {
			all = append(all, ",\n"...)
		}
		all = append(all, text...)
	}
	golden(t, "writes.json", append(all, ']'))
}

// Every write of package projection is read as it was, for random values of every type.
func TestWritesSurviveTheWire(t *testing.T) {
	for seed := range uint64(2000) {
		g := generator{rand.New(rand.NewPCG(seed, 1))}
		w := g.write()
		text, back := readBack(t, w)
		require.True(t, memory.Same([]projection.Write{w}, []projection.Write{back}), "seed %d: %s\n%#v\n%#v", seed, text, w, back)
	}
}

// generator makes random writes, of the types that answers are read as.
type generator struct{ *rand.Rand }

func (g generator) text() string {
	const alphabet = "ab.$%\x00\"\\<é世\u2028😀 \n"
	runes := []rune(alphabet)
	var b strings.Builder
	for range g.IntN(6) {
		b.WriteRune(runes[g.IntN(len(runes))])
	}
	return b.String()
}

func (g generator) name() string {
	return strings.Trim(strings.ReplaceAll(g.text(), "\x00", ""), "$") + "x"
}

func (g generator) field() string {
	steps := make([]string, 1+g.IntN(3))
	for i := range steps {
		steps[i] = projection.EscapeKey(g.text())
	}
	return strings.Join(steps, ".")
}

func (g generator) scalar() any {
	decimal, _ := bson.ParseDecimal128(fmt.Sprint(g.IntN(1e6)-5e5, ".", g.IntN(100)))
	return []any{
		g.text(), int64(g.Uint64()), int32(g.Uint32()), math.Trunc(g.NormFloat64() * 1e3), g.NormFloat64(), g.IntN(2) == 1, decimal,
		time.UnixMilli(int64(g.Uint32())).UTC(),
		bson.Timestamp{T: g.Uint32(), I: g.Uint32()},
		someID,
	}[g.IntN(10)]
}

func (g generator) value(level int) any {
	switch g.IntN(8) {
	case 0:
		return nil
	case 1:
		return bson.Binary{Subtype: byte(g.IntN(2) * 0x80), Data: []byte(g.text())}
	case 2, 3:
		if level == 0 {
			break
		}
		a := bson.A{}
		for range g.IntN(3) {
			a = append(a, g.value(level-1))
		}
		return a
	case 4:
		if level > 0 {
			return g.document(level)
		}
	}
	return g.scalar()
}

func (g generator) document(level int) bson.D {
	d := bson.D{}
	for i := range g.IntN(4) {
		d = append(d, bson.E{Key: fmt.Sprint(i, g.name()), Value: g.value(level - 1)})
	}
	return d
}

func (g generator) conditions(field func() string) []projection.Condition {
	all := make([]projection.Condition, 1+g.IntN(2))
	for i := range all {
		all[i] = []projection.Condition{
			projection.Eq(field(), g.scalar()), projection.Lt(field(), g.scalar()), projection.Lte(field(), g.scalar()), projection.Gt(field(), g.scalar()),
			projection.Gte(field(), g.scalar()), projection.Missing(field()),
		}[g.IntN(6)]
	}
	return all
}

func (g generator) op() projection.Op {
	number := []any{int64(g.Int64()), int32(g.Int32()), g.NormFloat64()}[g.IntN(3)]
	where := g.conditions(g.field)
	if g.IntN(2) == 0 {
		where = g.conditions(func() string { return "" })
	}
	return []projection.Op{
		projection.Set(g.field(), g.value(3)), projection.SetOnInsert(g.field(), g.value(3)), projection.Unset(g.field()), projection.Add(g.field(), number),
		projection.Mul(g.field(), number), projection.Min(g.field(), g.value(1)), projection.Max(g.field(), g.value(1)),
		projection.Truncate(g.field(), int64(g.IntN(9)-4)), projection.AddToSet(g.field(), g.value(2), g.value(2)), projection.Pull(g.field(), g.value(2)),
		projection.PullWhere(g.field(), where[0], where[1:]...),
	}[g.IntN(11)]
}

func (g generator) write() projection.Write {
	switch g.IntN(4) {
	case 0:
		raw, err := bson.Marshal(g.document(3))
		if err != nil {
			panic(err)
		}
		return projection.Replace(g.name(), g.value(2), raw)
	case 1:
		return projection.DeleteIf(g.name(), g.value(2), projection.Missing(g.field()), g.conditions(g.field)...)
	}
	w := projection.UpdateOne{Collection: g.name(), ID: g.value(2), Upsert: g.IntN(2) == 0, InOrder: g.IntN(2) == 0}
	for range 1 + g.IntN(3) {
		w.Ops = append(w.Ops, g.op())
	}
	return w
}

// A bare integer is an int64 and any other bare number a double, in whatever it stands.
func TestBareNumbers(t *testing.T) {
	for text, want := range map[string]any{
		`5`: int64(5), `-5`: int64(-5), `9223372036854775807`: int64(math.MaxInt64), `5.0`: 5.0, `5e2`: 500.0,
		`[1,1.5]`: bson.A{int64(1), 1.5}, `{"a":1}`: bson.D{{Key: "a", Value: int64(1)}},
		`{"$numberInt":"5"}`: int32(5), `{"$numberLong":"5"}`: int64(5), `{"$numberDouble":"5"}`: 5.0,
		`{"$numberDouble":"Infinity"}`: math.Inf(1), `{"$date":{"$numberLong":"1000"}}`: time.Unix(1, 0).UTC(),
		`{"$ref":"c","$id":1}`: bson.D{{Key: "$ref", Value: "c"}, {Key: "$id", Value: int64(1)}},
	} {
		n, err := parse([]byte(text))
		require.NoError(t, err, text)
		got, err := readValue(n)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}

// What is not as the protocol has it is refused, whole.
func TestWrongAnswersAreRefused(t *testing.T) {
	answer := func(result string) string { return `{"declaration":"h","results":[` + result + `]}` }
	write := func(w string) string { return answer(`{"id":"0","writes":[` + w + `]}`) }
	op := func(o string) string { return write(`{"write":"update","collection":"c","id":"a","ops":[` + o + `]}`) }
	value := func(v string) string { return op(`{"op":"set","field":["a"],"value":` + v + `}`) }
	_, err := readAnswer([]byte(value(`1`)), 1, "h")
	require.NoError(t, err)
	_, err = readAnswer([]byte(value(`1`)), 1, "another")
	require.ErrorIs(t, err, errDeclaration)
	for name, text := range map[string]string{
		"truncated":              value(`1`)[:40],
		"two values":             value(`1`) + `{}`,
		"no result":              answer(``),
		"a result too many":      answer(`{"id":"0","writes":[]},{"id":"1","writes":[]}`),
		"another id":             answer(`{"id":"1","writes":[]}`),
		"a number as id":         answer(`{"id":0,"writes":[]}`),
		"neither":                answer(`{"id":"0"}`),
		"both":                   answer(`{"id":"0","writes":[],"permanent":"no"}`),
		"an object for a reason": answer(`{"id":"0","permanent":{}}`),
		"an unknown member":      `{"declaration":"h","results":[{"id":"0","writes":[]}],"more":1}`,
		"a member twice":         `{"declaration":"h","declaration":"h","results":[{"id":"0","writes":[]}]}`,
		"an unknown write":       write(`{"write":"drop","collection":"c","id":"a"}`),
		"a write without an id":  write(`{"write":"delete","collection":"c"}`),
		"a wrong member":         write(`{"write":"delete","collection":"c","id":"a","ops":[]}`),
		"a document that is no":  write(`{"write":"replace","collection":"c","id":"a","document":[]}`),
		"an unknown operator":    op(`{"op":"rename","field":["a"],"value":1}`),
		"a path as text":         op(`{"op":"set","field":"a.b","value":1}`),
		"no path":                op(`{"op":"set","field":[],"value":1}`),
		"no value":               op(`{"op":"set","field":["a"]}`),
		"an unset with value":    op(`{"op":"unset","field":["a"],"value":1}`),
		"a fraction to cut to":   op(`{"op":"truncate","field":["a"],"value":1.5}`),
		"no condition":           op(`{"op":"pullWhere","field":["a"],"where":[]}`),
		"an unknown condition":   op(`{"op":"pullWhere","field":["a"],"where":[{"field":["b"],"is":"regex","value":"x"}]}`),
		"too large an integer":   value(`9223372036854775808`),
		"too large a number":     value(`1e999`),
		"a dollar":               value(`{"$where":"x"}`),
		"a dollar inside":        value(`{"a":{"b":1,"$where":"x"}}`),
		"half a pair":            value(`"\ud800"`),
		"no UTF-8":               value("\"\xff\""),
		"NUL in a name":          value(`{"a\u0000b":1}`),
		"a relaxed date":         value(`{"$date":"2026-01-01T00:00:00Z"}`),
		"a wrong id":             value(`{"$oid":"123"}`),
		"int32 that is larger":   value(`{"$numberInt":"2147483648"}`),
		"too deep":               value(strings.Repeat("[", 1000) + strings.Repeat("]", 1000)),
	} {
		_, err := readAnswer([]byte(text), 1, "h")
		require.Error(t, err, name)
		require.NotErrorIs(t, err, errDeclaration, name)
	}
}

func TestLongReasonsAreTruncated(t *testing.T) {
	text := `{"declaration":"h","results":[{"id":"0","permanent":"` + strings.Repeat("é", 5000) + `"}]}`
	outcomes, err := readAnswer([]byte(text), 1, "h")
	require.NoError(t, err)
	require.ErrorIs(t, outcomes[0].Err, projection.ErrPermanent)
	require.LessOrEqual(t, len(outcomes[0].Err.Error()), maxReason)
}

// An answer never ends the process, and what is read can be written and read again.
func FuzzAnswer(f *testing.F) {
	text, err := os.ReadFile(filepath.Join("testdata", "writes.json"))
	require.NoError(f, err)
	f.Add([]byte(`{"declaration":"h","results":[{"id":"0","writes":` + string(text) + `}]}`))
	f.Add([]byte(`{"declaration":"h","results":[{"id":"0","permanent":"x"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		sameSyntax(t, body)
		outcomes, err := readAnswer(body, 1, "h")
		if err != nil || outcomes[0].Err != nil {
			return
		}
		for _, w := range outcomes[0].Writes {
			_, back := readBack(t, w)
			require.True(t, memory.Same([]projection.Write{w}, []projection.Write{back}), "%#v\n%#v", w, back)
		}
	})
}

// sameSyntax requires that a text is JSON for the parser if it is for encoding/json.
func sameSyntax(t *testing.T, text []byte) {
	t.Helper()
	_, err := parse(text)
	require.Equal(t, json.Valid(text), !errors.Is(err, errSyntax) && utf8.Valid(text), "%q", text)
}

func TestSyntaxIsThatOfEncodingJSON(t *testing.T) {
	for _, text := range []string{
		"", " ", "1 2", "[", "]", "[1,]", "[,1]", "[1 2]", "[]]", "{", "{,}", `{"a"}`, `{"a" 1}`, `{"a":}`, `{"a":1,}`, `{a:1}`, `{1:1}`, "{]", "[}", ` { "a" : [ ] , "b" : { } } `,
		"0", "-0", "01", "-", "-a", "1.", ".5", "1.5", "1e", "1e+", "1E-07", "+1", "0x1", "1e5e5", "tru", "true", "truefalse", "nul", "null", "False",
		`"`, `"a`, `"\`, `"\"`, `"\""`, `"\x"`, `"\u12"`, `"\u12g4"`, `"\u00e9"`, "\"\t\"", "\"\x00\"", "\"\x7f\"", "'a'", "\ufeff1",
	} {
		sameSyntax(t, []byte(text))
	}
}

// Nor does one of whose bytes some are wrong.
func TestDamagedAnswers(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "writes.json"))
	require.NoError(t, err)
	whole := `{"declaration":"h","results":[{"id":"0","writes":` + string(text) + `}]}`
	const damage = "0123456789.-eE$\"{}[],:abc\x00\\ntf "
	read := 0
	for seed := range uint64(5000) {
		random := rand.New(rand.NewPCG(seed, 2))
		body := []byte(whole)
		for range 1 + random.IntN(3) {
			body[random.IntN(len(body))] = damage[random.IntN(len(damage))]
		}
		sameSyntax(t, body)
		outcomes, err := readAnswer(body, 1, "h")
		if err != nil {
			continue
		}
		read++
		for _, w := range outcomes[0].Writes {
			_, back := readBack(t, w)
			require.True(t, memory.Same([]projection.Write{w}, []projection.Write{back}), "seed %d: %#v", seed, w)
		}
	}
	require.Greater(t, read, 50, "too few were read to show anything")
}

func someChange(t *testing.T) envelope.Change {
	t.Helper()
	body, err := bson.Marshal(bson.D{
		{Key: "operationType", Value: "update"},
		{Key: "ns", Value: bson.D{{Key: "db", Value: "shop"}, {Key: "coll", Value: "events"}}},
		{Key: "documentKey", Value: bson.D{{Key: "_id", Value: someID}}},
		{Key: "clusterTime", Value: bson.Timestamp{T: 5, I: 1}},
		{Key: "fullDocument", Value: bson.D{{Key: "_id", Value: someID}, {Key: "n", Value: int32(1)}, {Key: "text", Value: "\"é\u2028"}}},
		{Key: "fullDocumentBeforeChange", Value: bson.D{{Key: "_id", Value: someID}}},
		{Key: "updateDescription", Value: bson.D{{Key: "updatedFields", Value: bson.D{{Key: "n", Value: int32(1)}}}}},
	})
	require.NoError(t, err)
	return envelope.Change{
		Stream: "shop.events", MessageID: "m", Position: "82", Epoch: 3, Aggregate: "a \"1\"", Operation: envelope.Update, Type: "Changed", Version: 7,
		Time: someTime, CorrelationID: "c", Body: body,
	}
}

// An event has neither position, epoch, message id nor cluster time, and the rest survives.
func TestEventsKeepTheirForm(t *testing.T) {
	c := someChange(t)
	text, err := appendEvent([]byte("["), 0, &c, false)
	require.NoError(t, err)
	text = append(text, ']')
	golden(t, "events.json", text)
	events, err := ReadEvents(text)
	require.NoError(t, err)
	e := events[0]
	require.True(t, e.LookedUp())
	require.Equal(t, c.Document(), e.Document())
	require.Equal(t, c.Before(), e.Before())
	require.Equal(t, c.Key(), e.Key())
	require.Equal(t, (projection.Event{Change: c}).UpdateDescription(), e.UpdateDescription())
	e.Body, c.Body = nil, nil
	c.Stream, c.MessageID, c.Position, c.Epoch = "", "", "", 0
	require.Equal(t, c, e.Change)
}

// A program in Go has the documents of an event byte by byte, for random values of every type.
func TestAProgramInGoHasTheSameBytes(t *testing.T) {
	for seed := range uint64(2000) {
		g := generator{rand.New(rand.NewPCG(seed, 2))}
		c := someChange(t)
		document := append(g.document(4), bson.E{Key: "ref", Value: bson.D{{Key: "$ref", Value: "c"}, {Key: "$id", Value: 1}}})
		if seed%2 == 0 { // only the driver reads this one
			document = append(document, bson.E{Key: "$" + g.name(), Value: g.value(1)})
		}
		body, err := bson.Marshal(bson.D{{Key: "fullDocument", Value: document}})
		require.NoError(t, err)
		c.Body = body
		text, err := appendEvent([]byte("["), 0, &c, true)
		require.NoError(t, err)
		events, err := ReadEvents(append(text, ']'))
		require.NoError(t, err)
		require.Equal(t, c.Document(), events[0].Document(), "seed %d: %s", seed, text)
	}
}

// A document that JSON cannot carry goes as BSON to a program that takes it, and is refused for
// another one.
func TestWhatJSONCannotCarry(t *testing.T) {
	c := someChange(t)
	body, err := bson.Marshal(bson.D{{Key: "fullDocument", Value: bson.D{{Key: "v", Value: bson.D{{Key: "$numberInt", Value: "5"}}}}}})
	require.NoError(t, err)
	c.Body = body
	_, err = appendEvent(nil, 0, &c, false)
	require.ErrorIs(t, err, projection.ErrPermanent)
	require.ErrorIs(t, err, errNotJSON)
	text, err := appendEvent([]byte("["), 0, &c, true)
	require.NoError(t, err)
	events, err := ReadEvents(append(text, ']'))
	require.NoError(t, err)
	require.Equal(t, c.Document(), events[0].Document())
}

// declared is a projection that declares everything.
type declared struct{ projection.Timeline }

func (declared) Collections() []projection.Collection {
	return []projection.Collection{{Name: "timeline", Indexes: []projection.Index{
		{
			Keys: bson.D{{Key: "lastType", Value: int32(1)}, {Key: "types." + projection.EscapeKey("a.b"), Value: int32(-1)}}, Unique: true,
			Partial: bson.D{{Key: "_sluice.empty", Value: bson.D{{Key: "$exists", Value: false}}}},
		},
	}}}
}

func (declared) NeedsPostImages() bool { return true }

func TestDeclarationsKeepTheirForm(t *testing.T) {
	text, err := AppendDeclaration(declared{})
	require.NoError(t, err)
	golden(t, "declaration.json", text)
	d, err := ReadDeclaration(text)
	require.NoError(t, err)
	require.Equal(t, "timeline", d.Name)
	require.True(t, d.OneDocument && d.NeedsPostImages && d.TakesBase64)
	require.Len(t, d.Hash, 64)
	want, _ := projection.Collections(declared{})
	got, ok := projection.Collections(Declared(d))
	require.True(t, ok)
	require.Equal(t, want, got)
}

func TestWrongDeclarationsAreRefused(t *testing.T) {
	with := func(collection string) string { return `{"protocol":1,"name":"p","collections":[` + collection + `]}` }
	_, err := ReadDeclaration([]byte(with(`{"name":"c","keyedBy":["data","id"]}`)))
	require.NoError(t, err)
	for name, text := range map[string]string{
		"another protocol":     `{"protocol":2,"name":"p","collections":[{"name":"c"}]}`,
		"no protocol":          `{"name":"p","collections":[{"name":"c"}]}`,
		"no name":              `{"protocol":1,"name":"","collections":[{"name":"c"}]}`,
		"no collection":        with(``),
		"an unknown member":    `{"protocol":1,"name":"p","collections":[{"name":"c"}],"colections":[]}`,
		"one of two documents": `{"protocol":1,"name":"p","collections":[{"name":"c"},{"name":"d"}],"oneDocument":true}`,
		"twice":                with(`{"name":"c"},{"name":"c"}`),
		"system":               with(`{"name":"system.users"}`),
		"a guard":              with(`{"name":"other_positions"}`),
		"processes":            with(`{"name":"other_processes"}`),
		"a build":              with(`{"name":"other_build"}`),
		"a view":               with(`{"name":"orders_current"}`),
		"a version":            with(`{"name":"orders_v2"}`),
		"declarations":         with(`{"name":"` + storeCollection + `"}`),
		"a dollar":             with(`{"name":"a$b"}`),
		"a dotted key":         with(`{"name":"c","keyedBy":["a.b"]}`),
		"another order":        with(`{"name":"c","indexes":[{"keys":[{"field":["a"],"order":2}]}]}`),
		"no key":               with(`{"name":"c","indexes":[{"keys":[]}]}`),
	} {
		_, err := ReadDeclaration([]byte(text))
		require.Error(t, err, name)
	}
}

// What decides where guards are and how documents are found cannot change; the rest can.
func TestOnlyHarmlessDeclarationChangesAreAdopted(t *testing.T) {
	read := func(text string) *Declaration {
		d, err := ReadDeclaration([]byte(text))
		require.NoError(t, err)
		return d
	}
	before := read(`{"protocol":1,"name":"p","collections":[{"name":"c","keyedBy":["id"]}]}`)
	for text, adopts := range map[string]bool{
		`{"protocol":1,"name":"p","collections":[{"name":"c","keyedBy":["id"]},{"name":"d"}],"needsPostImages":true}`:              true,
		`{"protocol":1,"name":"p","collections":[{"name":"c","keyedBy":["id"],"indexes":[{"keys":[{"field":["a"],"order":1}]}]}]}`: true,
		`{"protocol":1,"name":"q","collections":[{"name":"c","keyedBy":["id"]}]}`:                                                  false,
		`{"protocol":1,"name":"p","collections":[{"name":"c","keyedBy":["other"]}]}`:                                               false,
		`{"protocol":1,"name":"p","collections":[{"name":"c","keyedBy":["id"]}],"oneDocument":true}`:                               false,
	} {
		require.Equal(t, adopts, before.Adopts(read(text)) == nil, text)
	}
	one := read(`{"protocol":1,"name":"p","collections":[{"name":"c"}],"oneDocument":true}`)
	require.Error(t, one.Adopts(read(`{"protocol":1,"name":"p","collections":[{"name":"d"}],"oneDocument":true}`)))
}

func TestURLs(t *testing.T) {
	for text, fine := range map[string]bool{
		"http://127.0.0.1:8088": true, "http://localhost:8088/base": true, "http://[::1]:8088": true, "https://projection.example": true,
		"http://projection:8088": false, "http://10.0.0.1": false, "": false, "127.0.0.1:8088": false, "ftp://127.0.0.1": false,
		"https://me:secret@projection.example": false, "https://projection.example?a=1": false,
	} {
		require.Equal(t, fine, CheckURL(text) == nil, text)
	}
}

func TestAnswersKeepTheirForm(t *testing.T) {
	text, err := AppendAnswer(nil, "h", []Outcome{
		{Writes: everyWrite()[1:2]}, {}, {Err: projection.Permanent(errors.New("no rule for it"))},
	})
	require.NoError(t, err)
	golden(t, "answer.json", text)
	outcomes, err := readAnswer(text, 3, "h")
	require.NoError(t, err)
	require.Len(t, outcomes[0].Writes, 1)
	require.Empty(t, outcomes[1].Writes)
	require.NoError(t, outcomes[1].Err)
	require.EqualError(t, outcomes[2].Err, "no rule for it")
}

// Values that are encoded without the driver have the driver's form.
func TestPlainValuesHaveTheDriversForm(t *testing.T) {
	for _, value := range []any{
		"", "plain", `<"a\b">`, `"quoted"`, "ä\u2028\x00\x7f", "tab\t", int32(-5), int32(math.MaxInt32), int64(7), int64(math.MinInt64), 12,
	} {
		const canonical, escapeHTML = true, false
		want, err := bson.MarshalExtJSON(bson.D{{Key: "v", Value: value}}, canonical, escapeHTML)
		require.NoError(t, err)
		got, err := appendValue([]byte(`{"v":`), value)
		require.NoError(t, err)
		if n, ok := value.(int); ok { // the driver makes it an int32 if it fits
			want = fmt.Appendf(nil, `{"v":{"$numberLong":"%d"}}`, n)
		}
		require.Equal(t, string(want), string(got)+"}")
	}
}
