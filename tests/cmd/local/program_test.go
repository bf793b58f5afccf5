package main

import (
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/projector/projection/serve"
)

// ownProgram: the projection is a program of the user's, under any name.
func ownProgram(t *testing.T, c command) {
	for name, test := range map[string]struct {
		p    projection.Projection
		code int
		want string
	}{
		"one document":             {board{}, 0, "EXACTLY RIGHT"},
		"several documents":        {tally{}, 0, "EXACTLY RIGHT"},
		"another answer each time": {&board{answers: new(atomic.Int64)}, 1, "NOT RIGHT"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handler, err := serve.Handler(test.p)
			require.NoError(t, err)
			program := httptest.NewServer(handler)
			defer program.Close()
			r := c.run(t, "--projection="+test.p.Name(), "--projection-url="+program.URL, "--events=300", "--rate=200", "--chaos=kill-projector@1s", "--quiet")
			require.Equal(t, test.code, r.code, r.out)
			require.Contains(t, r.out, test.want)
			require.Contains(t, r.out, " documents ")
			require.Contains(t, r.out, "recomputed from the source by projector verify")
			require.EqualValues(t, 300, r.report["events_applied"])
		})
	}
	r := c.run(t, "--projection=board", "--projection-url=http://127.0.0.1:9", "--quiet")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.out, "which must run before this command")
}

// board is the last event of each order.
type board struct{ answers *atomic.Int64 }

func (board) Name() string       { return "board" }
func (board) Collection() string { return "board" }

func (b board) Project(e projection.Event) ([]projection.Write, error) {
	ops := []projection.Op{projection.Set("last", e.Type)}
	if b.answers != nil {
		ops = append(ops, projection.Set("answer", b.answers.Add(1)))
	}
	return []projection.Write{projection.Update("board", e.Aggregate, ops...)}, nil
}

// tally counts events by their type, for which each order's events write to several documents.
type tally struct{}

func (tally) Name() string                         { return "tally" }
func (tally) Collections() []projection.Collection { return []projection.Collection{{Name: "types"}} }

func (tally) Project(e projection.Event) ([]projection.Write, error) {
	return []projection.Write{projection.Update("types", e.Type, projection.Inc("events", 1))}, nil
}
