package commandline

import (
	"encoding/json"
	"io"

	"github.com/sluice-cdc/sluice/shared/checkup"
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
