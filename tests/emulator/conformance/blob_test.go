// Package conformance compares our emulators with other implementations of the same protocols: one
// table of cases, run with the real SDK against each. If an implementation answers differently, the
// table has its answer and a note on which side follows the documentation. Such an answer is
// required as well, so that the test fails when the difference disappears.
package conformance

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
	"github.com/sluice-cdc/sluice/tests/emulator/azurite"
	emulator "github.com/sluice-cdc/sluice/tests/emulator/blob"
)

// blobCase is a sequence of operations on a blob whose lease, by idA, is in
// the state start.
type blobCase struct {
	name  string
	start lease.StateType
	steps []blobStep
}

type blobStep struct {
	do   func(*blobEnv) error
	want blobResult
	// azurite is Azurite's answer if it differs, and why ours is right.
	azurite *difference
}

type difference struct {
	got blobResult
	why string
}

// run does the steps and holds every answer against the table.
func (c blobCase) run(e *blobEnv, azurite bool) {
	e.t.Helper()
	for i, s := range c.steps {
		got, err := resultOf(s.do(e))
		require.NoError(e.t, err, "step %d must be answered", i+1)
		want := s.want
		if azurite && s.azurite != nil {
			require.NotEqual(e.t, want, s.azurite.got, "step %d: this is no difference", i+1)
			want = s.azurite.got
		}
		require.Equal(e.t, want, got, "step %d", i+1)
	}
}

func allBlobCases() []blobCase {
	cases := leaseTableCases()
	cases = append(cases, leaseSequenceCases()...)
	cases = append(cases, conditionCases()...)
	return append(cases, contentCases()...)
}

// TestBlobInProcess runs the table against our own server, each case with
// virtual time and a server of its own.
func TestBlobInProcess(t *testing.T) {
	for _, c := range allBlobCases() {
		t.Run(c.name, func(t *testing.T) {
			virtualtime.Test(t, func(t *testing.T) {
				transport := emulator.New(emulator.Options{}).Transport()
				e := newBlobEnv(t, newBlobClient(t, emulator.ConnectionString("blob.test"), transport), "case")
				require.NoError(t, e.enter(c.start))
				require.NoError(t, e.awaitState(c.start))
				c.run(e, false)
			})
		})
	}
}

// TestBlobAzurite runs the same table against Azurite.
func TestBlobAzurite(t *testing.T) {
	virtualtime.Real(t)
	runForeign(t, newBlobClient(t, azurite.ForTest(t), nil), true)
}

// TestBlobService runs it against whatever BLOB_CONNECTION_STRING points at,
// and takes no difference for granted.
func TestBlobService(t *testing.T) {
	connectionString := os.Getenv("BLOB_CONNECTION_STRING")
	if connectionString == "" {
		t.Skip("BLOB_CONNECTION_STRING is not set: no real service to ask")
	}
	runForeign(t, newBlobClient(t, connectionString, nil), false)
}

// runForeign runs the table against a service whose clock is not ours. All
// leases that have to expire first do so at the same time.
func runForeign(t *testing.T, client *azblob.Client, azurite bool) {
	t.Helper()
	cases := allBlobCases()
	run := uuid.NewString()[:8] // a real service keeps a deleted container's name for a while
	envs := make([]*blobEnv, len(cases))
	for i, c := range cases {
		envs[i] = newBlobEnv(t, client, fmt.Sprintf("sluice-%s-%d", run, i))
		t.Cleanup(func() { _, _ = client.DeleteContainer(context.WithoutCancel(t.Context()), envs[i].name, nil) })
		if c.start != breaking { // that state ends after a time, so it is entered last
			require.NoError(t, envs[i].enter(c.start))
		}
	}
	for i, c := range cases {
		if c.start != breaking {
			require.NoError(t, envs[i].awaitState(c.start), c.name)
		}
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			e := envs[i].forCase(t)
			if c.start == breaking {
				require.NoError(t, e.enter(breaking))
			}
			c.run(e, azurite)
		})
	}
}
