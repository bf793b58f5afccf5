package plan

import (
	"fmt"
	"strings"
	"text/template"
)

// String describes the settings in words.
func (s Settings) String() string {
	return describe(s, `{{with .Documents}}events are changes of documents
		{{- if eq . "`+Keys+`"}}, identified by their keys{{else if eq . "`+Compound+`"}} whose keys are {aggregate, version}{{else}}, identified by {{.}}{{end}}; {{end -}}
		{{.Producers}} producers of {{.Streams}} streams{{if .Shared}} of the same aggregates{{end}} ({{.Lanes}} lanes,
batches of {{.BatchMessages}} by {{.Scope}}, {{.Format}}, takeover by {{.Takeover}}, {{.MaxInFlight}} in flight),
sessions by {{.SessionKey}} with locks of {{.LockDuration}},
{{.Projectors}} projectors of {{.Projection}} ({{.Sessions}} sessions on {{.Connections}} connections,
receiver {{.Receiver}}, held for {{.MaxHold}} at most, {{.ReceiveBatch}} messages at once,
{{if .GapWait.Duration}}a missing version is waited for {{.GapWait}}{{else}}versions are not judged{{end}}
		{{- if .WatchProcesses}}, processes are watched{{end}}
		{{- if .Program}}, the projection is a program of its own{{end}}),
round trips of {{.MongoTrip}} to MongoDB {{.MongoVersion}} and {{.BlobTrip}} to storage
		{{- with .Store}}; checkpoints in {{.}}{{end}}
		{{- if .Partitioned}}; partitioned{{end}}
		{{- with .Deliveries}}; {{.}} deliveries{{if $.WrongDeliveries}}, of which projectors do not know{{end}}{{end}}
		{{- if .TimeToLive.Duration}}; messages live for {{.TimeToLive}}{{end}}
		{{- with .BodyKiB}}; bodies of {{.}} KiB, of which a session has room for {{batches}} batches of {{$.BodiesInHand}}{{end}}
		{{- with .VersionFirst}}; versions begin with {{.}}{{end}}
		{{- with .Snapshot}}; {{snapshot .}}, in chunks of {{$.SnapshotChunk}} at {{$.SnapshotRate}} a second (0: any number){{end}}
		{{- with .PackEvents}}; up to {{.}} events or {{$.PackBytes}} bytes in a message{{end}}`)
}

// describe executes a template with what it describes. A line break in the template is a space.
func describe(what any, words string) string {
	var b strings.Builder
	parsed := template.Must(template.New("").Funcs(phrases).Parse(strings.ReplaceAll(words, "\n", " ")))
	if err := parsed.Execute(&b, what); err != nil {
		panic(err) // every kind of fault is tested, and every setting
	}
	return b.String()
}

// String describes the fault in words.
func (s Step) String() string { return describe(s, faults[s.Kind].words) }

// phrases are the functions of the templates, for what is no field of the thing described.
var phrases = template.FuncMap{
	"batches":    func() int { return Batches },
	"event":      func(s Step) string { return fmt.Sprintf("version %d of %d of %s", s.Before+1, s.Total, s.Aggregate) },
	"killed":     killed,
	"partitions": func() int { return Partitions },
	"percent":    func(chance float64) string { return fmt.Sprintf("%.0f %%", 100*chance) },
	"silently":   silently,
	"snapshot": func(form string) string {
		return map[string]string{
			SnapshotStart: "streams begin with a snapshot", SnapshotHeal: "a snapshot replaces lost history",
			SnapshotRequest: "the operator starts a snapshot", SnapshotAggregates: "the operator starts a snapshot of single aggregates",
		}[form]
	},
	"inHand": func(s Step) string {
		when := "are in hand"
		if s.Early {
			when = "have just come"
		}
		return fmt.Sprintf("%s when messages %s, for %s (updates that take it: %d)", silently(s), when, s.For, s.Times)
	},
	"until": func(s Step) string {
		if s.For.Duration > 0 {
			return "for " + s.For.String()
		}
		return "until all else is at rest"
	},
}

func silently(s Step) string {
	if s.Silent {
		return " without a word"
	}
	return ""
}

func killed(after []Duration) string {
	if len(after) == 0 {
		return ""
	}
	var each []string
	for _, d := range after {
		each = append(each, d.String())
	}
	return ", by a command that is killed first after " + strings.Join(each, " and ")
}
