package operator

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/sluice-cdc/sluice/projector/internal/remote"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/projector/projection/projectiontest"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// checkCommand tests the program of a projection with nothing but events: no setting, database or
// broker is needed.
func checkCommand() Command {
	var url, events, expect, few, mayGrow string
	var timeout time.Duration
	return Command{
		Name: "check", Takes: "--url URL --events FILE [--expect FILE] [--few PATHS] [--may-grow COLLECTIONS]",
		Summary: "test a projection's program as package projectiontest tests one in Go: the same writes at each call, the same\n" +
			"  \tdocuments in any order between aggregates, no undeclared collection, no growth without bound",
		Flags: func(f *flag.FlagSet, _ *Request) {
			f.StringVar(&url, "url", "", "the program's `URL`, such as http://127.0.0.1:8088")
			f.StringVar(&events, "events", "", "`FILE` with events, one JSON object a line, or one array of them")
			f.StringVar(&expect, "expect", "", "`FILE` with the expected documents: {\"COLLECTION\": [document, …]}")
			f.StringVar(&few, "few", "", "`PATHS` of fields that have few values in the whole history, separated by commas")
			f.StringVar(&mayGrow, "may-grow", "", "`COLLECTIONS` whose documents grow with the history to a bound that you know, separated by commas")
			f.DurationVar(&timeout, "timeout", remote.DefaultTimeout, "bounds one `call`")
		},
		Check: func(_ string, _ *Request) error {
			switch {
			case url == "" || events == "":
				return errors.New("takes --url URL and --events FILE")
			case remote.CheckURL(url) != nil:
				return fmt.Errorf("--url: %w", remote.CheckURL(url))
			}
			return nil
		},
		Local: func(out io.Writer) error {
			given, err := readEvents(events)
			if err != nil {
				return err
			}
			var want projectiontest.Documents
			if expect != "" {
				if want, err = readExpected(expect); err != nil {
					return err
				}
			}
			options := []projectiontest.Option{projectiontest.Few(list(few)...)}
			for _, collection := range list(mayGrow) {
				options = append(options, projectiontest.MayGrow(collection))
			}
			return checkProgram(out, remote.New(remote.Options{URL: url, Timeout: timeout}), given, want, options)
		},
	}
}

func list(text string) (all []string) {
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			all = append(all, item)
		}
	}
	return all
}

// checkProgram writes what it finds to out. The error is [commandline.ErrFound] if something is
// wrong with the program.
func checkProgram(out io.Writer, client *remote.Client, events []projection.Event, want projectiontest.Documents, options []projectiontest.Option) error {
	ctx := context.Background()
	defer client.Close()
	d, err := client.First(ctx)
	if err != nil {
		return err
	}
	changes := make([]envelope.Change, len(events))
	for i, e := range events {
		changes[i] = e.Change
	}
	p := client.Projection()
	x, err := client.Examine(ctx, changes)
	if err == nil {
		err = errors.Join(x.Differs, projectiontest.Problems(p, events, want, options...))
	}
	if errors.Is(err, remote.ErrProgram) {
		return err
	}
	if err != nil {
		fmt.Fprintf(out, "projection %s:\n%v\n", d.Name, err)
		return commandline.ErrFound
	}
	fmt.Fprintf(out, "projection %s: %s are projected as they must be (all in one call: %s)\n",
		d.Name, commandline.Count(len(events), "event"), x.Call.Round(10*time.Microsecond))
	return nil
}

// writtenEvent is an event of a file. The documents are Extended JSON.
type writtenEvent struct {
	Aggregate, Operation, Type string
	Version                    *int64
	Time                       time.Time
	Document, Before, Key      json.RawMessage
}

// readEvents reads the events of a file: one JSON object a line, or one array.
func readEvents(path string) (events []projection.Event, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	var all []json.RawMessage
	if trimmed := bytes.TrimSpace(text); bytes.HasPrefix(trimmed, []byte("[")) {
		if err := json.Unmarshal(trimmed, &all); err != nil {
			return nil, fmt.Errorf("read events of %s: %w", path, err)
		}
	} else {
		for line := range bytes.Lines(text) {
			if line = bytes.TrimSpace(line); len(line) > 0 {
				all = append(all, line)
			}
		}
	}
	for i, each := range all {
		e, err := readEvent(each)
		if err != nil {
			return nil, fmt.Errorf("read event %d of %s: %w", i+1, path, err)
		}
		events = append(events, e)
	}
	if len(events) == 0 {
		return nil, fmt.Errorf("read events of %s: it holds none", path)
	}
	return events, nil
}

func readEvent(text []byte) (e projection.Event, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var w writtenEvent
	if err := decoder.Decode(&w); err != nil {
		return e, err
	}
	if w.Aggregate == "" {
		return e, errors.New("it has no aggregate")
	}
	document := func(raw json.RawMessage) any {
		if len(raw) == 0 {
			return nil
		}
		return string(raw)
	}
	defer func() { // a document that is not Extended JSON
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	switch envelope.Operation(w.Operation) {
	case "", envelope.Insert:
		e = projectiontest.Insert(w.Aggregate, document(w.Document))
	case envelope.Update:
		e = projectiontest.Update(w.Aggregate, document(w.Before), document(w.Document))
	case envelope.Replace:
		e = projectiontest.Replace(w.Aggregate, document(w.Before), document(w.Document))
	case envelope.Delete:
		e = projectiontest.Delete(w.Aggregate, document(w.Key), document(w.Before))
	default:
		return e, fmt.Errorf("the operation %q is not one of insert, update, replace and delete", w.Operation)
	}
	e.Type = cmp.Or(w.Type, e.Type)
	if w.Version != nil {
		e.Version = *w.Version
	}
	e.Time = w.Time
	return e, nil
}

// readExpected reads the expected documents of a file, by collection.
func readExpected(path string) (projectiontest.Documents, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read expected documents: %w", err)
	}
	var all map[string][]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("read expected documents of %s: it is not {\"COLLECTION\": [document, …]}: %w", path, err)
	}
	want := projectiontest.Documents{}
	for collection, documents := range all {
		want[collection] = []any{}
		for _, d := range documents {
			want[collection] = append(want[collection], string(d))
		}
	}
	return want, nil
}
