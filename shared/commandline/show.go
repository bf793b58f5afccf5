package commandline

import (
	"encoding/json"
	"io"

	"github.com/sluice-cdc/sluice/shared/checkup"
)

// Show shows a result: as JSON, or for people.
func Show(out io.Writer, asJSON bool, result interface{ Print(out io.Writer) }) error {
	if asJSON {
		return WriteJSON(out, result)
	}
	result.Print(out)
	return nil
}

// WriteJSON writes what --json asks for.
func WriteJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// Diagnose shows what a doctor found; that the settings can be read stands in front, as it would not be here otherwise. The
// error is [ErrFound] where something is wrong.
func Diagnose(out io.Writer, asJSON bool, found checkup.Findings) error {
	found = append(checkup.Findings{{Check: "settings", OK: true, Says: "all can be read and agree"}}, found...)
	if err := Show(out, asJSON, found); err != nil {
		return err
	}
	if !found.Healthy() {
		return ErrFound
	}
	return nil
}
