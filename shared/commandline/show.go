package commandline

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"

	"github.com/sluice-cdc/sluice/shared/checkup"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// Show prints a result, as JSON or for people.
func Show(out io.Writer, asJSON bool, result interface{ Print(out io.Writer) }) error {
	if asJSON {
		return WriteJSON(out, result)
	}
	result.Print(out)
	return nil
}

// WriteJSON prints a value as JSON, for --json.
func WriteJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// Diagnose prints what a doctor found. It begins with the settings, which could be read, or there
// would be no diagnosis. The error is [ErrFound] if there is a problem.
func Diagnose(out io.Writer, asJSON bool, found checkup.Findings) error {
	found = append(checkup.Findings{{Check: "settings", OK: true, Message: "all can be read and agree"}}, found...)
	if err := Show(out, asJSON, found); err != nil {
		return err
	}
	if !found.Healthy() {
		return ErrFound
	}
	return nil
}

// Count returns a number of things for people: "1 event", "3 events". one names a single thing, and
// takes an s for more.
func Count[N int | int64](n N, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// versionCommand prints which build this is.
func versionCommand[D, R any](program string) Command[D, R] {
	var asJSON bool
	return Command[D, R]{
		Name: "version", Takes: "[--json]", Summary: "which build this is",
		Flags: func(f *flag.FlagSet, _ *R) { f.BoolVar(&asJSON, "json", false, "as JSON") },
		Local: func(out io.Writer) error {
			version, goVersion := telemetry.Build()
			if asJSON {
				return WriteJSON(out, struct {
					Program string `json:"program"`
					Version string `json:"version"`
					Go      string `json:"go"`
				}{program, version, goVersion})
			}
			_, err := fmt.Fprintf(out, "%s %s, built by %s\n", program, version, goVersion)
			return err
		},
	}
}
