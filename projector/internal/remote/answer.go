package remote

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-cdc/sluice/projector/projection"
)

// Outcome is what a program answered for one event: its writes, or why it has no writes.
type Outcome struct {
	Writes []projection.Write
	// Bytes is the size of the result in the answer.
	Bytes int
	// Err is a [projection.ErrPermanent] if the event can never be projected; with any other error
	// it can be asked for again.
	Err error
}

// errDeclaration is an answer that was given under another declaration.
var errDeclaration = errors.New("the program has another declaration than the one that was read")

// readAnswer reads the answer to a call with n events. Errors: errDeclaration, and what is not as
// the protocol has it, in any of the results.
func readAnswer(body []byte, n int, hash string) ([]Outcome, error) {
	p := parsers.Get().(*parser)
	defer p.free()
	root, err := p.parse(body)
	if err != nil {
		return nil, fmt.Errorf("the answer %w", err)
	}
	o := root.object("the answer")
	declared := o.text("declaration")
	switch {
	case o.err != nil:
		return nil, o.err
	case declared != hash:
		return nil, errDeclaration
	}
	results := o.list("results")
	if err := o.end(); err != nil {
		return nil, err
	}
	if len(results) != n {
		return nil, fmt.Errorf("the answer has %d results for %d events", len(results), n)
	}
	outcomes := make([]Outcome, n)
	for i, each := range results {
		if outcomes[i], err = readResult(each, i); err != nil {
			return nil, fmt.Errorf("result %d: %w", i, err)
		}
	}
	return outcomes, nil
}

func readResult(n node, index int) (out Outcome, err error) {
	out.Bytes = len(n.raw)
	o := n.object("it")
	if id := o.text("id"); o.err == nil && id != strconv.Itoa(index) {
		o.fail("has the id %q: results are in the order of the events", shorten(id))
	}
	if reason, refused := o.take("permanent"); refused {
		if reason.kind != '"' {
			o.fail("has a reason in permanent that is not a string")
		}
		out.Err = projection.Permanent(errors.New(strings.Clone(cut(reason.text, maxReason))))
		return out, o.end()
	}
	writes := o.list("writes")
	if len(writes) > 0 {
		out.Writes = make([]projection.Write, len(writes))
	}
	for i, each := range writes {
		if out.Writes[i], err = readWrite(each); err != nil {
			return Outcome{Bytes: out.Bytes}, err
		}
	}
	return out, o.end()
}

// AppendAnswer appends the answer of a program. An outcome's error must be permanent.
func AppendAnswer(dst []byte, hash string, outcomes []Outcome) ([]byte, error) {
	e := encoder{dst: slices.Grow(dst, 512*(len(outcomes)+1))}
	e.raw(`{"declaration":"`, hash, `","results":[`)
	for i, out := range outcomes {
		e.comma(i)
		e.raw(`{"id":"`, strconv.Itoa(i), `",`)
		if out.Err != nil {
			e.raw(`"permanent":`)
			e.text(out.Err.Error())
			e.raw(`}`)
			continue
		}
		e.raw(`"writes":[`)
		for j, w := range out.Writes {
			e.comma(j)
			e.write(w)
		}
		e.raw(`]}`)
	}
	e.raw(`]}`)
	return e.dst, e.err
}
