package engine

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// Writing is a write of one document that is about to happen.
type Writing struct {
	NS NS
	ID any
	// Document is the new version; nil: the document is deleted.
	Document bson.Raw
	// Before is how many writes its transaction holds already; -1 outside of a transaction.
	Before int
}

// veto refuses writes.
type veto struct{ of func(Writing) (code int32) }

// Veto lets every write fail for which of gives a code that is not 0, until end is called. It is
// asked under the engine's lock: it must be quick and must not call the engine.
func (e *Engine) Veto(of func(Writing) (code int32)) (end func()) {
	v := &veto{of}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.vetoes = append(e.vetoes, v)
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.vetoes = slices.DeleteFunc(e.vetoes, func(other *veto) bool { return other == v })
	}
}

// vetoed reports whether a write is refused; the caller holds the lock.
func (e *Engine) vetoed(txn *Txn, ns NS, id bson.RawValue, document bson.Raw) error {
	if len(e.vetoes) == 0 {
		return nil
	}
	w := Writing{NS: ns, Document: document, Before: -1}
	w.ID, _, _ = value.DecodeValue(id.Type, id.Value)
	if txn != nil {
		w.Before = len(txn.ops)
	}
	for _, v := range e.vetoes {
		if code := v.of(w); code != 0 {
			return mongoerr.New(code, "the write of %v in %s is refused by a rule of the server", w.ID, ns)
		}
	}
	return nil
}
