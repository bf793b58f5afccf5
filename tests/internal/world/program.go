package world

import (
	"net/http"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/projector/projection/serve"
	"github.com/sluice-cdc/sluice/tests/internal/program"
)

// StartProgram serves a projection until [program.Program.End].
func (w *World) StartProgram(p projection.Projection) *program.Program {
	w.Helper()
	g := &program.Program{}
	g.Start(w.Serves(p))
	return g
}

// Serves returns the handler of a projection.
func (w *World) Serves(p projection.Projection) http.Handler {
	w.Helper()
	handler, err := serve.Handler(p)
	require.NoError(w, err)
	return handler
}
