package commandline

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/sluice-cdc/sluice/shared/settings"
	"github.com/sluice-cdc/sluice/shared/terminal"
)

// configuration is what the command config prints: all settings in force, and their problems.
type configuration struct {
	Settings []settings.Setting `json:"settings"`
	Problems []string           `json:"problems"`
}

// Print writes the settings as a table, followed by the problems, for people.
func (c configuration) Print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SETTING\tVALUE\tFROM\tDEFAULT")
	for _, s := range c.Settings {
		fallback := terminal.Printable(s.Default)
		if s.Required {
			fallback = "required"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", s.Name, terminal.Printable(s.Value), s.From, fallback)
	}
	_ = w.Flush()
	if len(c.Problems) > 0 {
		fmt.Fprintf(out, "\n%s must be fixed:\n", Count(len(c.Problems), "setting"))
	}
	for _, problem := range c.Problems {
		fmt.Fprintf(out, "  - %s\n", terminal.Printable(problem))
	}
}

// ConfigCommand returns the command config. list returns the settings in force, and load reads them
// as the program's own work does.
func ConfigCommand[D, R any](list func() []settings.Setting, load func() error) Command[D, R] {
	var asJSON, lint bool
	return Command[D, R]{
		Name: "config", Takes: "[--lint] [--json]",
		Summary: "every setting with its value (secrets hidden), where that is from, and its default; --lint: 1 where something is wrong",
		Flags: func(f *flag.FlagSet, _ *R) {
			f.BoolVar(&asJSON, "json", false, "as JSON")
			f.BoolVar(&lint, "lint", false, "show what is wrong alone, and exit with 1 where something is")
		},
		Local: func(out io.Writer) error {
			shown := configuration{Settings: list(), Problems: []string{}}
			err := load()
			problems, ok := errors.AsType[settings.Problems](err)
			if err != nil && !ok {
				return err
			}
			for _, problem := range problems {
				shown.Problems = append(shown.Problems, problem.Error())
			}
			switch {
			case lint && !asJSON && len(problems) == 0:
				fmt.Fprintln(out, "all settings can be read and agree")
			case lint && !asJSON:
				fmt.Fprintln(out, terminal.Lines(problems.Error()))
			default:
				if err := Show(out, asJSON, shown); err != nil {
					return err
				}
			}
			if lint && len(problems) > 0 {
				return ErrFound
			}
			return nil
		},
	}
}
