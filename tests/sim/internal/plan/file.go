package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// Read reads a plan from a file.
func Read(path string) (Plan, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Plan{}, fmt.Errorf("read plan: %w", err)
	}
	p, err := Decode(text)
	if err != nil {
		return Plan{}, fmt.Errorf("read plan %s: %w", path, err)
	}
	return p, nil
}

// Decode reads the form of [Plan.Encode], and refuses a plan that cannot be executed.
func Decode(text []byte) (p Plan, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return p, err
	}
	if _, err := d.Token(); err != io.EOF {
		return p, fmt.Errorf("something follows the plan")
	}
	return p, p.validate()
}

// Encode writes a plan as JSON, one line for each thing that happens.
func (p Plan) Encode() []byte {
	var b bytes.Buffer
	b.WriteString("{\n")
	if p.Broke != "" {
		fmt.Fprintf(&b, " %q: %s,\n", "broke", line(p.Broke))
	}
	if p.Story != "" {
		fmt.Fprintf(&b, " %q: %s,\n", "story", line(p.Story))
	}
	fmt.Fprintf(&b, " %q: %d,\n %q: %s,\n %q: %s,\n", "seed", p.Seed, "settings", line(p.Settings), "heals", line(p.Heals))
	if len(p.KilledReplays) > 0 {
		fmt.Fprintf(&b, " %q: %s,\n", "killedReplays", line(p.KilledReplays))
	}
	if len(p.Before) > 0 {
		fmt.Fprintf(&b, " %q: %s,\n", "before", line(p.Before))
	}
	list(&b, "steps", p.Steps, ",")
	list(&b, "garbage", p.Garbage, ",")
	list(&b, "bursts", p.Bursts, "")
	b.WriteString("}\n")
	return b.Bytes()
}

func list[T any](b *bytes.Buffer, name string, all []T, end string) {
	fmt.Fprintf(b, " %q: [", name)
	for n, each := range all {
		if n > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n  " + line(each))
	}
	if len(all) > 0 {
		b.WriteString("\n ")
	}
	b.WriteString("]" + end + "\n")
}

func line(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // strings, numbers and durations always marshal
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// validate refuses a plan that cannot be executed.
func (p Plan) validate() error {
	s := p.Settings
	switch {
	case s.Producers < 1 || s.Projectors < 1 || s.Lanes < 1 || s.Sessions < 1 || s.Connections < 1:
		return fmt.Errorf("settings: producers, projectors, lanes, sessions and connections must be at least 1")
	case s.Streams < 1 || s.Streams > len(Collections):
		return fmt.Errorf("settings: %d streams: expected 1 or %d", s.Streams, len(Collections))
	case s.Shared && (s.Streams == 1 || s.Deliveries > 0):
		return fmt.Errorf("settings: aggregates are shared by streams where there are several, and no deliveries are used up")
	case s.Projection != Timeline && s.Projection != Ledger:
		return fmt.Errorf("settings: projection %q: expected %s or %s", s.Projection, Timeline, Ledger)
	case s.Program && (s.Projection != Timeline || s.Deliveries > 0):
		return fmt.Errorf("settings: a program is a %s, and no deliveries are used up", Timeline)
	case s.Snapshot != "" && (!slices.Contains(snapshotForms, s.Snapshot) || s.SnapshotChunk < 1):
		return fmt.Errorf("settings: snapshot %q in chunks of %d: expected one of %v, and a chunk", s.Snapshot, s.SnapshotChunk, snapshotForms)
	case !slices.Contains([]string{"", Images, RequiredImages, Keys, Compound}, s.Documents):
		return fmt.Errorf("settings: documents %q: expected %s, %s, %s or %s", s.Documents, Images, RequiredImages, Keys, Compound)
	case s.Documents == Compound && s.Snapshot != SnapshotStart:
		return fmt.Errorf("settings: documents %q: expected streams that begin with a snapshot", s.Documents)
	}
	for n, step := range p.Steps {
		if err := p.check(step); err != nil {
			return fmt.Errorf("step %d, %s at %s: %w", n+1, step.Kind, step.At, err)
		}
	}
	for _, b := range append(slices.Clone(p.Bursts), Burst{Events: p.Before}) {
		for _, e := range b.Events {
			if (e.Collection != "") != s.Shared || s.Shared && !slices.Contains(Collections[:s.Streams], e.Collection) {
				return fmt.Errorf("event %s: expected a collection exactly where aggregates are shared, of %v", e, Collections[:s.Streams])
			}
		}
	}
	for n, g := range p.Garbage {
		if !slices.Contains([]Form{Unnamed, Unsaid, BrokenBody}, g.Form) || g.ID == "" || g.Aggregate == "" {
			return fmt.Errorf("garbage %d: expected an id, an aggregate, and a form that there is, not %q", n+1, g.Form)
		}
	}
	return nil
}

// requires reports whether a kind of fault requires a field of its step.
func requires(kind Kind, field string) bool {
	return slices.Contains(strings.Fields(faults[kind].needs), field)
}

func (p Plan) check(s Step) error {
	fault, known := faults[s.Kind]
	if !known {
		return fmt.Errorf("there is no such fault")
	}
	replicas := slices.Concat(p.Settings.ProducerNames(), p.Settings.ProjectorNames())
	has := map[string]bool{
		"of": slices.Contains(replicas, s.Of), "for": s.For.Duration > 0, "times": s.Times > 0, "version": s.Version == 1 || s.Version == 2, "command": s.Command != "", "chance": s.Chance > 0, "delay": s.Delay.Duration > 0,
		"aggregate": s.Aggregate != "", "total": s.Total > 0, "stream": slices.Contains(p.Settings.StreamNames(), s.Stream),
		"code": s.Code > 0, "condition": s.Condition != "",
		"collection": slices.Contains(parts[p.Settings.Projection], s.Collection),
		"answer":     slices.Contains(append([]string{Released, Modified, Rejected, Detached, UsedUp, Expired}, Answers...), s.Answer),
		"program":    p.Settings.Program, "manner": slices.Contains(programPoison, s.Manner),
		"way":    slices.Contains([]string{Requests, Replies, BothWays}, s.Way),
		"server": slices.Contains([]string{ServiceBus, MongoDB, Storage}, s.Server),
	}
	for field := range strings.FieldsSeq(fault.needs) {
		if !has[field] {
			return fmt.Errorf("%q is missing, or is nothing that there is", field)
		}
	}
	return nil
}
