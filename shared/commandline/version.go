package commandline

import (
	"flag"
	"fmt"
	"io"

	"github.com/sluice-cdc/sluice/shared/telemetry"
)

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
