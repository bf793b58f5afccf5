package operator

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/terminal"
)

// parkedByOperator is the output of `parked park`.
type parkedByOperator struct {
	Aggregate string `json:"aggregate"`
	// New is set if the read model had nothing of the aggregate.
	New bool `json:"new"`

	program string
}

// parkByOperator parks an aggregate for an operator's reason.
func parkByOperator(ctx context.Context, p *Projector, r Request) error {
	found, err := p.Applier.Guards(ctx, r.aggregate)
	if err != nil {
		return err
	}
	_, known := found[r.aggregate]
	switch err := p.Applier.ParkByOperator(ctx, r.aggregate, r.reason); {
	case errors.Is(err, apply.ErrParked):
		return fmt.Errorf("%s is parked already; to see why: %s", terminal.Printable(r.aggregate), terminal.Paste(r.aggregate, p.Program, "parked show"))
	case err != nil:
		return err
	}
	return commandline.Show(p.Out, r.json, parkedByOperator{Aggregate: r.aggregate, New: !known, program: p.Program})
}

// Print implements [commandline.Show] for people.
func (d parkedByOperator) Print(out io.Writer) {
	fmt.Fprintf(out, "%s: parked; its events wait in the dead-letter queue from now on\n", terminal.Printable(d.Aggregate))
	if d.New {
		fmt.Fprintln(out, "The read model has nothing of it so far: check the name.")
	}
	fmt.Fprintf(out, "To apply them and go on: %s\n", terminal.Paste(d.Aggregate, d.program, "parked replay"))
}
