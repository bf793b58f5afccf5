package programs

import (
	"fmt"
	"strings"
)

func line(aggregate string, version int, data string) string {
	return fmt.Sprintf(`{"aggregateId":%s,"version":%d,"type":"T","occurredAt":"2026-01-01T00:00:00Z","data":%s}`+"\n", aggregate, version, data)
}

// inputs returns files of events for make run: invalid ones that are refused with file and line,
// and unusual ones that are accepted.
func inputs() []tried {
	refused := func(name, input, says string) tried {
		return tried{name: "input: " + name, program: "local", input: input, code: 2, says: says}
	}
	played := func(name, input string, args ...string) tried {
		return tried{name: "input: " + name, program: "local", input: input, args: args, code: 0, says: "RIGHT"}
	}
	ok := line(`"a"`, 1, "{}")
	extended := line(`"keys that look like Extended JSON"`, 1, `{"$numberLong":"1","$oid":"x","$date":"no"}`)
	nested := func(depth int) string { return strings.Repeat(`{"n":`, depth) + "1" + strings.Repeat("}", depth) }
	return []tried{
		refused("nothing", "\n\n", "it holds no event"),
		refused("blanks and a byte order mark", "\xef\xbb\xbf \n", "it holds no event"),
		refused("no JSON", "hello\n", ":1: is not JSON .invalid character 'h'.*expected an object"),
		refused("cut off", `{"aggregateId":"a",`, ":1: is not JSON: it ends too early"),
		refused("a list", "[1]\n", ":1: is a JSON array"),
		refused("a number", "17\n", ":1: is a JSON number"),
		refused("a text", `"a"`, ":1: is a JSON string"),
		refused("two in a line", strings.TrimSpace(ok)+line(`"a"`, 2, "{}"), ":1: something follows the JSON object"),
		refused("a comma between lines", strings.TrimSpace(ok)+",\n", ":1: something follows"),
		refused("version as text", `{"aggregateId":"a","version":"1","type":"T","occurredAt":"2026-01-01T00:00:00Z"}`, `"version" is a JSON string, expected a whole number`),
		refused("version with a fraction", `{"aggregateId":"a","version":1.5,"type":"T","occurredAt":"2026-01-01T00:00:00Z"}`, `"version" is a JSON number 1.5`),
		refused("version zero", line(`"a"`, 0, "{}"), `"version" is missing or below 1`),
		refused("version negative", line(`"a"`, -1, "{}"), `"version" is missing or below 1`),
		refused("version beyond 64 bits", `{"aggregateId":"a","version":99999999999999999999,"type":"T","occurredAt":"2026-01-01T00:00:00Z"}`, `expected a whole number of at most 64 bits`),
		refused("begins at two", line(`"a"`, 2, "{}"), `version 2 of aggregate "a" where version 1 must follow`),
		refused("version again", ok+ok, `:2: version 1 of aggregate "a" where version 2 must follow`),
		refused("version left out", ok+line(`"a"`, 3, "{}"), `:2: version 3 of aggregate "a"`),
		refused("aggregate as number", line("17", 1, "{}"), `"aggregateId" is a JSON number, expected a string`),
		refused("aggregate null", line("null", 1, "{}"), `"aggregateId" is missing or empty`),
		refused("aggregate empty", line(`""`, 1, "{}"), `"aggregateId" is missing or empty`),
		refused("no aggregate", `{"version":1,"type":"T","occurredAt":"2026-01-01T00:00:00Z"}`, `"aggregateId" is missing`),
		refused("no type", `{"aggregateId":"a","version":1,"occurredAt":"2026-01-01T00:00:00Z"}`, `"type" is missing`),
		refused("no version", `{"aggregateId":"a","type":"T","occurredAt":"2026-01-01T00:00:00Z"}`, `"version" is missing`),
		refused("no time", `{"aggregateId":"a","version":1,"type":"T"}`, `"occurredAt" is missing`),
		refused("a time in words", `{"aggregateId":"a","version":1,"type":"T","occurredAt":"yesterday"}`, `"occurredAt" is "yesterday"`),
		refused("a time without a zone", `{"aggregateId":"a","version":1,"type":"T","occurredAt":"2026-01-01T00:00:00"}`, `not a time such as`),
		refused("a time as number", `{"aggregateId":"a","version":1,"type":"T","occurredAt":1767225600}`, `"occurredAt" is a JSON number`),
		refused("an impossible day", `{"aggregateId":"a","version":1,"type":"T","occurredAt":"2026-02-30T00:00:00Z"}`, `not a time such as`),
		refused("an unknown field", `{"aggregateId":"a","version":1,"kind":"T"}`, `has the unknown field "kind", expected an object`),
		refused("a misspelt field", `{"agregateId":"a","version":1,"type":"T","occurredAt":"2026-01-01T00:00:00Z"}`, `unknown field "agregateId"`),
		refused("not UTF-8", "{\"aggregateId\":\"\xff\"}\n", "is not UTF-8"),
		refused("UTF-16", "\xff\xfe{\x00}\x00", "is UTF-16 text: save the file as UTF-8"),
		refused("a second line that is broken", ok+"{\n", ":2: is not JSON"),
		refused("CSV", "aggregateId,version\na,1\n", ":1: is not JSON .*expected an object"),
		refused("a comment", "// events\n"+ok, ":1: is not JSON"),
		{name: "input: a file that is not there", program: "local", args: []string{"--input", "/nowhere/events.ndjson"}, code: 2, says: "no such file"},
		{name: "input: a directory", program: "local", args: []string{"--input", "/tmp"}, code: 2, says: "is a directory"},
		{name: "input: no flag before the file", program: "local", args: []string{"events.ndjson"}, code: 2, says: `"events.ndjson" is no flag`},

		played("odd ones", "\xef\xbb\xbf"+strings.Join([]string{
			ok, strings.ReplaceAll(line(`"Windows line ends"`, 1, "{}")+line(`"Windows line ends"`, 2, "{}"), "\n", "\r\n"),
			"\n", line(`"a"`, 2, "{}"), "\n\n", line(`"a"`, 3, "{}"),
			line(`"data null"`, 1, "null"),
			line(`"data of every type"`, 1, `{"n":null,"b":true,"i":1,"f":1.5,"big":9007199254740993,"s":"x","l":[1,[2,{}]],"d":{}}`),
			line(`"keys with dots and dollars"`, 1, `{"a.b":1,"$set":2,"":3}`),
			line(`"--all"`, 1, "{}"), line(`"it's \"x\"\n\u001b[31m"`, 1, "{}"), line(`"訂單-١٧-😀"`, 1, "{}"),
			line(`"`+strings.Repeat("x", 5000)+`"`, 1, "{}"),
			line(`"a large event"`, 1, `{"s":"`+strings.Repeat("x", 400<<10)+`"}`),
			extended, line(`"nested"`, 1, nested(80)), line(`"nested"`, 2, nested(179)),
			strings.TrimSpace(line(`"no newline at the end"`, 1, "{}")),
		}, "")),
		played("a mirror of keys that look like Extended JSON", extended, "--projection=mirror"),
		refused("documents nested 300 deep", line(`"a"`, 1, nested(300)), ":1: is nested deeper than the 180 levels that MongoDB stores"),
	}
}
