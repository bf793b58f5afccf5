package remote

import (
	"context"

	"github.com/sluice-cdc/sluice/projector/projection"
)

// program is the projection of a program.
type program struct{ client *Client }

// oneDocument is the projection of a program that promises one document for each aggregate.
type oneDocument struct{ program }

var (
	_ projection.Stored      = program{}
	_ projection.PostImages  = program{}
	_ projection.OneDocument = oneDocument{}
)

// Projection returns the projection of the client's program, as its declaration describes it.
func (c *Client) Projection() projection.Projection {
	if c.Declared().OneDocument {
		return oneDocument{program{c}}
	}
	return program{c}
}

// Declared returns the projection of a declaration, without a program to call.
func Declared(d *Declaration) projection.Projection {
	c := New(Options{})
	c.Use(d)
	return c.Projection()
}

// Name implements [projection.Projection].
func (p program) Name() string { return p.client.Declared().Name }

// Collections implements [projection.Stored].
func (p program) Collections() []projection.Collection { return p.client.Declared().Collections }

// NeedsPostImages implements [projection.PostImages].
func (p program) NeedsPostImages() bool { return p.client.Declared().NeedsPostImages }

// Collection implements [projection.OneDocument].
func (p oneDocument) Collection() string { return p.client.Declared().Collections[0].Name }

// Project implements [projection.Projection] by a call for one event, for the commands: a projector
// that runs asks for the events of a session together. A failure of the call is not the event's.
func (p program) Project(e projection.Event) ([]projection.Write, error) {
	d := p.client.Declared()
	body, err := appendEvent(nil, 0, &e.Change, d.TakesBase64)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.client.o.Timeout)
	defer cancel()
	outcomes, failed := p.client.post(ctx, [][]byte{body}, d.Hash)
	if failed != nil {
		return nil, failed
	}
	return outcomes[0].Writes, outcomes[0].Err
}
