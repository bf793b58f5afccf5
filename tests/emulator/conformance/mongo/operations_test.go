package mongo_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/emulator/conformance/internal/mongod"
)

const operationsFile = "testdata/operations.txt"

var record = flag.Bool("record", false, "write the answers of a real server of version 6.0 into "+operationsFile+", or what the embedded one refuses")

// operation is one line of the table with its answer.
type operation struct {
	docs    string // the documents of the collection
	kind    string
	text    string
	answer  string // of MongoDB 6.0
	refused string // what the embedded server does not support; empty if it gives the same answer
	lines   [3]int // of the text, the answer and the refusal; 0 without one
}

// TestOperationsAreAnsweredAsByMongoDB60 runs each operation of the table and compares the answer
// with the recorded one, which is that of MongoDB 6.0.27. The embedded server must give the same
// one, or refuse with an error that names what it does not support.
func TestOperationsAreAnsweredAsByMongoDB60(t *testing.T) {
	f := like(t, [3]int32{6, 0, 0})
	operations, lines := readOperations(t)
	answers := map[int]string{} // by line
	refusals := 0
	for _, o := range operations {
		t.Run(fmt.Sprintf("line_%d", o.lines[0]), func(t *testing.T) {
			got, refused := f.answer(t, o)
			if *record {
				answers[o.lines[0]] = "= " + got
				if mongod.URI() == "" {
					answers[o.lines[0]] = "= " + o.answer
				}
				if mongod.URI() != "" {
					refused = o.refused
				}
				if refused != "" {
					answers[o.lines[0]] += "\n- " + refused
				}
				return
			}
			if mongod.URI() == "" && o.refused != "" {
				require.Equal(t, o.refused, refused, "%s %s", o.kind, o.text)
				return
			}
			require.Equal(t, o.answer, got, "%s %s\non %s", o.kind, o.text, o.docs)
		})
		if o.refused != "" {
			refusals++
		}
	}
	if *record {
		writeOperations(t, lines, answers)
		return
	}
	_ = os.Getenv("SLUICE_TREE") // the page is in another module: see tests/internal/tree
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	require.Contains(t, string(readme), fmt.Sprintf("has %d operations", len(operations)))
	require.Contains(t, string(readme), fmt.Sprintf("to all but %d, which", refusals))
}

// readOperations reads the table: a line "on DOCUMENT…" for what follows it, operations, each
// with its answer on a line "= …" and what the embedded server does not support on a line "-
// …"; "#" begins a comment.
func readOperations(t *testing.T) (all []operation, lines []string) {
	t.Helper()
	text, err := os.ReadFile(operationsFile)
	require.NoError(t, err)
	lines = strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	docs := "[]"
	for i, line := range lines {
		kind, rest, _ := strings.Cut(line, " ")
		switch kind {
		case "", "#":
		case "on":
			docs = rest
		case "=":
			all[len(all)-1].answer, all[len(all)-1].lines[1] = rest, i+1
		case "-":
			all[len(all)-1].refused, all[len(all)-1].lines[2] = rest, i+1
		default:
			all = append(all, operation{docs: docs, kind: kind, text: rest, lines: [3]int{i + 1}})
		}
	}
	return all, lines
}

func writeOperations(t *testing.T, lines []string, answers map[int]string) {
	t.Helper()
	var out bytes.Buffer
	for i, line := range lines {
		if strings.HasPrefix(line, "= ") || strings.HasPrefix(line, "- ") {
			continue
		}
		fmt.Fprintln(&out, line)
		if answer, ok := answers[i+1]; ok {
			fmt.Fprintln(&out, answer)
		}
	}
	require.NoError(t, os.WriteFile(operationsFile, out.Bytes(), 0o600))
}

// answer runs one operation on a new collection and returns the answer as text, without what
// differs from run to run.
func (f *fixture) answer(t *testing.T, o operation) (answer, refused string) {
	t.Helper()
	db := f.client.Database("db")
	require.NoError(t, db.Drop(t.Context()))
	require.NoError(t, db.CreateCollection(t.Context(), "c"))
	if docs := extended(t, o.docs).(bson.A); len(docs) > 0 {
		_, err := db.Collection("c").InsertMany(t.Context(), docs)
		require.NoError(t, err)
	}
	arg := extended(t, o.text)
	switch o.kind {
	case "expr":
		return f.replies(t, d("aggregate", "c", "pipeline", bson.A{d("$limit", 1), d("$project", d("_id", 0, "r", arg))}, "cursor", d()))
	case "aggregate":
		return f.replies(t, d("aggregate", "c", "pipeline", arg, "cursor", d()))
	case "filter":
		return f.replies(t, d("find", "c", "filter", arg, "projection", d("_id", 1), "sort", d("_id", 1)))
	case "find":
		return f.replies(t, append(d("find", "c"), arg.(bson.D)...))
	case "update":
		return f.replies(t, d("update", "c", "updates", bson.A{arg}), d("find", "c", "sort", d("_id", 1)))
	case "delete":
		return f.replies(t, d("delete", "c", "deletes", bson.A{arg}), d("find", "c", "sort", d("_id", 1)))
	case "run":
		var commands []bson.D
		list, several := arg.(bson.A)
		if !several {
			list = bson.A{arg}
		}
		for _, c := range list {
			commands = append(commands, c.(bson.D))
		}
		return f.replies(t, commands...)
	case "change":
		stream, err := db.Collection("c").Watch(t.Context(), driver.Pipeline{}, options.ChangeStream().SetMaxAwaitTime(5*time.Second))
		require.NoError(t, err)
		closing(t, stream)
		if answer, refused = f.replies(t, d("update", "c", "updates", bson.A{arg})); !strings.Contains(answer, `"nModified":1`) {
			return answer, refused
		}
		require.True(t, stream.Next(t.Context()), stream.Err())
		var event bson.D
		require.NoError(t, stream.Decode(&event))
		return text(t, slices.DeleteFunc(event, func(e bson.E) bool {
			return slices.Contains([]string{"_id", "clusterTime", "wallTime", "ns", "collectionUUID"}, e.Key)
		})), ""
	}
	t.Fatalf("%s is no kind of operation", o.kind)
	return "", ""
}

// replies runs commands and returns their answers, up to the first that is refused.
func (f *fixture) replies(t *testing.T, commands ...bson.D) (answer, refused string) {
	t.Helper()
	var all []string
	for _, c := range commands {
		var reply bson.D
		err := f.client.Database("db").RunCommand(t.Context(), c).Decode(&reply)
		if e, is := errors.AsType[driver.CommandError](err); is {
			if _, what, ours := strings.Cut(e.Message, "the embedded MongoDB does not support "); ours {
				refused = what
			}
			return strings.Join(append(all, fmt.Sprintf("error %d", e.Code)), "; "), refused
		}
		if e, is := errors.AsType[driver.WriteException](err); is { // what the driver makes of a reply with one of them alone
			for _, we := range e.WriteErrors {
				described := fmt.Sprintf("write error %d", we.Code)
				if len(we.Details) > 0 {
					var details bson.D
					require.NoError(t, bson.Unmarshal(we.Details, &details))
					described += " " + text(t, details)
				}
				all = append(all, described)
			}
			if e.WriteConcernError != nil {
				all = append(all, fmt.Sprintf("write concern error %d", e.WriteConcernError.Code))
			}
			return strings.Join(all, "; "), ""
		}
		require.NoError(t, err)
		if writeErrors, _ := of(reply, "writeErrors").(bson.A); len(writeErrors) > 0 {
			if _, what, ours := strings.Cut(fmt.Sprint(of(writeErrors[0].(bson.D), "errmsg")), "the embedded MongoDB does not support "); ours {
				refused = what
			}
		}
		all = append(all, text(t, lasting(reply)))
	}
	return strings.Join(all, "; "), refused
}

// lasting leaves out of a reply what another server, or another run, gives otherwise: times, terms,
// cursors, texts of errors.
func lasting(reply bson.D) bson.D {
	out := bson.D{}
	for _, e := range reply {
		switch e.Key {
		case "ok", "$clusterTime", "operationTime", "electionId", "opTime", "id", "ns", "errmsg", "uuid", "collectionUUID":
			continue
		}
		switch v := e.Value.(type) {
		case bson.D:
			if e.Key == "cursor" {
				return append(out, lasting(v)...)
			}
		case bson.A:
			if e.Key == "writeErrors" {
				for i := range v {
					v[i] = lasting(v[i].(bson.D))
				}
			}
		}
		out = append(out, e)
	}
	return out
}

func extended(t *testing.T, text string) any {
	t.Helper()
	var out bson.D
	require.NoError(t, bson.UnmarshalExtJSON([]byte(`{"v":`+text+`}`), false, &out), "%s", text)
	return out[0].Value
}

var plain = regexp.MustCompile(`\{"\$number(?:Int|Double)":"(-?[0-9.E+-]+)"\}`)

// text writes a value as Extended JSON that distinguishes each type: integers of 32 bits and
// doubles are plain numbers, and doubles have a point.
func text(t *testing.T, v bson.D) string {
	t.Helper()
	out, err := bson.MarshalExtJSON(v, true, false)
	require.NoError(t, err)
	require.True(t, json.Valid(out))
	return plain.ReplaceAllString(string(out), "$1")
}
