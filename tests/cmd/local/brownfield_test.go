package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// beginsFull runs with a collection that is full before the producers begin: the read model is
// built beside what is inserted, goes on with what waited, and comes out exactly right, although
// leader and projector are killed.
func beginsFull(t *testing.T, c command) {
	r := c.run(t, "--build", "--before=3000", "--projection=orders", "--events=600", "--rate=200", "--chaos=kill-leader@1s,kill-projector@2s", "--seed=5", "--quiet")
	require.Equal(t, 0, r.code, r.out)
	require.Contains(t, r.out, "EXACTLY RIGHT")
	require.EqualValues(t, 600, r.report["events_inserted"])
	require.EqualValues(t, 3600, r.report["events_applied"])
	require.EqualValues(t, 0, r.report["lost"])
}

// beginsWithSnapshot runs with a collection that is full before the producers begin: the stream
// begins with its documents, beside what is inserted, and comes out exactly right, although leaders
// are killed within the snapshot.
func beginsWithSnapshot(t *testing.T, c command) {
	r := c.run(t, "--snapshot", "--before=8000", "--events=600", "--rate=200", "--chaos=kill-leader@300ms", "--seed=5", "--quiet")
	require.Equal(t, 0, r.code, r.out)
	require.Contains(t, r.out, "EXACTLY RIGHT")
	require.EqualValues(t, 8600, r.report["events_inserted"])
	require.EqualValues(t, 8600, r.report["events_applied"])
	require.EqualValues(t, 0, r.report["lost"])
}
