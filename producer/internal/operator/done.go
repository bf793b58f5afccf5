package operator

import (
	"fmt"
	"io"
	"strings"

	"github.com/sluice-cdc/sluice/shared/commandline"
)

// Result describes what a command changed, as --json prints it.
type Result struct {
	Stream string `json:"stream"`
	// Changed is false if there was nothing to do.
	Changed bool `json:"changed"`
	// Epoch is the record's present epoch.
	Epoch int64 `json:"epoch"`
	// Generation is the record's generation, if the checkpoint was moved.
	Generation int64 `json:"generation,omitempty"`
	// From and To are the cluster times between which the checkpoint was moved.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// OldRecord is the blob with the previous record; Copy is the blob of a copy, with its
	// container.
	OldRecord string `json:"old_record,omitempty"`
	Copy      string `json:"copy,omitempty"`
	// BrokeLeaseOf is the leader whose lease was broken.
	BrokeLeaseOf string `json:"broke_lease_of,omitempty"`
	// Message is the text for the operator.
	Message string `json:"message"`
}

// print prints the result of a command, as JSON or text.
func (s *Stream) print(d Result, message string, args ...any) error {
	d.Stream, d.Message = s.Name, strings.TrimSpace(fmt.Sprintf(message, args...))
	return commandline.Show(s.Out, s.JSON, d)
}

// Print writes the result as text.
func (d Result) Print(out io.Writer) { fmt.Fprintln(out, d.Message) }
