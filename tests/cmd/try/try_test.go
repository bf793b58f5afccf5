package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What people do wrong, through the built programs: each is told what is wrong and what to do, by the right exit code.
func TestWhatPeopleDoWrongIsTold(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds and starts programs")
	}
	b, err := open(t.Context())
	require.NoError(t, err)
	t.Cleanup(b.close)
	for i, c := range append(configurations(), inputs()...) {
		if c.open != "" || c.program == "local" && c.code == 0 { // what is played takes seconds, and has tests of its own
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.code == runs {
				c.within = timeless // no test asserts a time: the table of scripts/try.sh shows it
			}
			o := b.play(t.Context(), i, c)
			require.Empty(t, o.wrong, "it said: %s", o.said)
		})
	}
}
