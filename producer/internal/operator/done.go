package operator

import (
	"fmt"
	"io"
	"strings"

	"github.com/sluice-cdc/sluice/shared/commandline"
)

// Result is what a command changed, as --json shows it.
type Result struct {
	Stream string `json:"stream"`
	// Changed is false where there was nothing to do.
	Changed bool `json:"changed"`
	// Epoch is the record's now.
	Epoch int64 `json:"epoch"`
	// Generation is the record's, where the checkpoint was moved.
	Generation int64 `json:"generation,omitempty"`
	// From and To are the cluster times between which the checkpoint was moved.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// OldRecord is the blob that keeps the record as it was; Copy is the one that a copy was made to, with its container.
	OldRecord string `json:"old_record,omitempty"`
	Copy      string `json:"copy,omitempty"`
	// BrokeLeaseOf is the leader whose lease was broken.
	BrokeLeaseOf string `json:"broke_lease_of,omitempty"`
	// Message is what people are told.
	Message string `json:"says"`
}

// print prints what a command did, as JSON or for people.
func (s *Stream) print(d Result, says string, args ...any) error {
	d.Stream, d.Message = s.Name, strings.TrimSpace(fmt.Sprintf(says, args...))
	return commandline.Show(s.Out, s.JSON, d)
}

// Print writes it for people.
func (d Result) Print(out io.Writer) { fmt.Fprintln(out, d.Message) }
