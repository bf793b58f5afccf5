package leasecheck_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	sdk "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer/store"
	"github.com/sluice-cdc/sluice/producer/store/storetest"
	"github.com/sluice-cdc/sluice/tests/emulator/azurite"
	"github.com/sluice-cdc/sluice/tests/emulator/blob"
	"github.com/sluice-cdc/sluice/tests/internal/leasecheck"
)

const (
	patience = 30 * time.Second
	s        = time.Second
)

// made is the creation of the blob, before everything else.
var made = leasecheck.Operation{Kind: leasecheck.Write, IfNoneMatch: true, Value: "v0", ETag: "0", Outcome: leasecheck.Done, Called: 0, Returned: 1}

func op(kind leasecheck.Kind, id string, called, returned time.Duration, outcome leasecheck.Outcome) leasecheck.Operation {
	return leasecheck.Operation{Kind: kind, LeaseID: id, Called: called, Returned: returned, Outcome: outcome, Duration: 15 * s}
}

func write(id, match, value, etag string, called, returned time.Duration, outcome leasecheck.Outcome) leasecheck.Operation {
	o := op(leasecheck.Write, id, called, returned, outcome)
	o.IfMatch, o.Value, o.ETag = match, value, etag
	return o
}

func read(value, etag string, leased bool, called, returned time.Duration) leasecheck.Operation {
	o := op(leasecheck.Read, "", called, returned, leasecheck.Done)
	o.Value, o.ETag, o.Leased = value, etag, leased
	return o
}

func TestOnlyLinearizableHistoriesAreAccepted(t *testing.T) {
	t.Parallel()
	const (
		done, refused, unknown         = leasecheck.Done, leasecheck.Refused, leasecheck.Unknown
		acquire, renew, release, breaK = leasecheck.Acquire, leasecheck.Renew, leasecheck.Release, leasecheck.Break
	)
	for name, test := range map[string]struct {
		explained bool
		history   []leasecheck.Operation
	}{
		"one after the other": {true, []leasecheck.Operation{
			op(acquire, "a", 1*s, 2*s, done), write("a", "0", "v1", "1", 3*s, 4*s, done), op(release, "a", 5*s, 6*s, done),
			op(acquire, "b", 7*s, 8*s, done), write("a", "1", "v2", "2", 9*s, 10*s, refused), read("v1", "1", true, 9*s, 10*s),
		}},
		"two hold the lease":                    {false, []leasecheck.Operation{op(acquire, "a", 1*s, 2*s, done), op(acquire, "b", 3*s, 4*s, done)}},
		"two hold the lease, asked at once":     {false, []leasecheck.Operation{op(acquire, "a", 1*s, 3*s, done), op(acquire, "b", 2*s, 4*s, done)}},
		"the second takes a lease that ran out": {true, []leasecheck.Operation{op(acquire, "a", 1*s, 2*s, done), op(acquire, "b", 15*s, 16*s, done)}},
		"it was renewed meanwhile": {false, []leasecheck.Operation{
			op(acquire, "a", 1*s, 2*s, done), op(renew, "a", 10*s, 11*s, done), op(acquire, "b", 15*s, 16*s, done),
		}},
		"perhaps it was renewed": {true, []leasecheck.Operation{
			op(acquire, "a", 1*s, 2*s, done), op(renew, "a", 10*s, 11*s, unknown), op(acquire, "b", 15*s, 16*s, done),
		}},
		"it is broken": {true, []leasecheck.Operation{
			op(acquire, "a", 1*s, 2*s, done), op(breaK, "", 2*s, 4*s, done), op(acquire, "b", 3*s, 5*s, done), op(renew, "a", 6*s, 7*s, refused),
		}},
		"the one who lost it goes on writing": {false, []leasecheck.Operation{
			op(acquire, "a", 1*s, 2*s, done), op(breaK, "", 3*s, 4*s, done), op(acquire, "b", 5*s, 6*s, done), write("a", "0", "v1", "1", 7*s, 8*s, done),
		}},
		"a write without the lease": {false, []leasecheck.Operation{op(acquire, "a", 1*s, 2*s, done), write("", "", "v1", "1", 3*s, 4*s, done)}},
		"a write over another one": {false, []leasecheck.Operation{
			op(acquire, "a", 1*s, 2*s, done), write("a", "0", "v1", "1", 3*s, 4*s, done), write("a", "0", "v2", "2", 5*s, 6*s, done),
		}},
		"an old value is read": {false, []leasecheck.Operation{
			op(acquire, "a", 1*s, 2*s, done), write("a", "0", "v1", "1", 3*s, 4*s, done), read("v0", "0", true, 5*s, 6*s),
		}},
		"a write without an answer is read, and was not before": {true, []leasecheck.Operation{
			op(acquire, "a", 1*s, 2*s, done), write("a", "0", "v1", "", 3*s, 4*s, unknown), read("v0", "0", true, 5*s, 6*s),
			read("v1", "1", true, 7*s, 8*s), write("a", "1", "v2", "2", 9*s, 10*s, done),
		}},
		"a write without an answer is read, and gone again": {false, []leasecheck.Operation{
			op(acquire, "a", 1*s, 2*s, done), write("a", "0", "v1", "", 3*s, 4*s, unknown), read("v1", "1", true, 5*s, 6*s),
			read("v0", "0", true, 7*s, 8*s),
		}},
		"refused for no reason": {false, []leasecheck.Operation{op(acquire, "a", 1*s, 2*s, refused)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := leasecheck.Check(append([]leasecheck.Operation{made}, test.history...), patience)
			if test.explained {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, leasecheck.ErrNotLinearizable)
			}
		})
	}
}

// Clients compete for one blob's lease, over sockets; the test checks what they observed.
func TestG4LeaseExclusionOnEveryBlobStore(t *testing.T) {
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		fight(t, blob.ConnectionString("storage:10000"), blob.New(blob.Options{}).Transport(), 8)
	})
	t.Run("Azurite", func(t *testing.T) {
		t.Parallel()
		transport := &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		fight(t, azurite.ForTest(t), &http.Client{Transport: transport}, 8)
	})
}

// fight runs clients that send random requests at once, each for its own lease id.
func fight(t *testing.T, connection string, to leasecheck.Doer, clients int) {
	t.Helper()
	recorder := leasecheck.NewRecorder("/records/b.json")
	begin, err := azblob.NewClientFromConnectionString(connection, over(recorder.Client(to)))
	require.NoError(t, err)
	_, err = begin.CreateContainer(t.Context(), "records", nil)
	require.NoError(t, err)
	none := azcore.ETagAny
	_, err = begin.UploadBuffer(t.Context(), "records", "b.json", []byte("v0"), &azblob.UploadBufferOptions{
		AccessConditions: &sdk.AccessConditions{ModifiedAccessConditions: &sdk.ModifiedAccessConditions{IfNoneMatch: &none}},
	})
	require.NoError(t, err)

	var fighting sync.WaitGroup
	for n := range clients {
		client, err := azblob.NewClientFromConnectionString(connection, over(recorder.Client(to)))
		require.NoError(t, err)
		f := &fighter{
			random: rand.New(rand.NewPCG(7, uint64(n))), name: fmt.Sprint(n),
			blob: client.ServiceClient().NewContainerClient("records").NewBlockBlobClient("b.json"),
		}
		fighting.Go(func() {
			for range 40 {
				f.turn(t.Context())
			}
		})
	}
	fighting.Wait()
	history := recorder.History()
	counts := map[string]int{}
	for _, o := range history {
		counts[fmt.Sprintf("%s %s", o.Kind, o.Outcome)]++
	}
	t.Logf("%v", counts)
	require.Positive(t, counts["acquire done"])
	require.Positive(t, counts["acquire refused"])
	require.Positive(t, counts["write done"])
	require.Positive(t, counts["break done"])
	require.NoError(t, leasecheck.Check(history, time.Minute))
}

func over(transport leasecheck.Doer) *azblob.ClientOptions {
	o := &azblob.ClientOptions{}
	o.Transport = transport
	o.Retry.MaxRetries = -1
	return o
}

type fighter struct {
	random *rand.Rand
	name   string
	blob   *blockblob.Client
	id     string // of the lease that it holds, or held
	etag   azcore.ETag
	turns  int
}

// turn sends one request. A refusal is expected.
func (f *fighter) turn(ctx context.Context) {
	f.turns++
	conditions := &sdk.ModifiedAccessConditions{}
	if f.random.IntN(2) == 0 && f.etag != "" {
		conditions.IfMatch = &f.etag
	}
	if f.id == "" {
		f.id = uuid.NewString()
	}
	client, err := lease.NewBlobClient(f.blob, &lease.BlobClientOptions{LeaseID: &f.id})
	if err != nil {
		return
	}
	switch f.random.IntN(8) {
	case 0, 1:
		_, _ = client.AcquireLease(ctx, 15, &lease.BlobAcquireOptions{ModifiedAccessConditions: conditions})
	case 2:
		_, _ = client.RenewLease(ctx, nil)
	case 3:
		if _, err := client.ReleaseLease(ctx, nil); err == nil {
			f.id = ""
		}
	case 4:
		_, _ = client.BreakLease(ctx, &lease.BlobBreakOptions{BreakPeriod: new(int32(0)), ModifiedAccessConditions: conditions})
	case 5, 6:
		text := fmt.Sprintf("%s writes %d", f.name, f.turns)
		response, err := f.blob.Upload(ctx, streaming.NopCloser(bytes.NewReader([]byte(text))), &blockblob.UploadOptions{
			AccessConditions: &sdk.AccessConditions{
				LeaseAccessConditions: &sdk.LeaseAccessConditions{LeaseID: &f.id}, ModifiedAccessConditions: conditions,
			},
		})
		if err == nil {
			f.etag = *response.ETag
		}
	case 7:
		response, err := f.blob.DownloadStream(ctx, nil)
		if err == nil {
			f.etag = *response.ETag
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
	}
}

// The requests of several clients for an object of a store are linearizable. Those of a store that
// returns earlier writes are not.
func TestRequestsOfAStoreAreRecorded(t *testing.T) {
	t.Parallel()
	for _, stale := range []bool{false, true} {
		recorder := leasecheck.NewRecorder("sluice/shop.events.json")
		memory := &storetest.Memory{}
		var writing sync.WaitGroup
		for range 4 {
			client := recorder.Store(memory)
			writing.Go(func() {
				_, _ = client.Create(t.Context(), "shop.events.json", []byte("0"))
				for n := range 8 {
					found, err := client.Get(t.Context(), "shop.events.json")
					if err == nil {
						_, _ = client.Put(t.Context(), "shop.events.json", fmt.Append(nil, n), found.Tag)
					}
				}
			})
		}
		writing.Wait()
		if stale {
			before, err := memory.Get(t.Context(), "shop.events.json")
			require.NoError(t, err)
			client := recorder.Store(memory)
			_, err = client.Put(t.Context(), "shop.events.json", []byte("later"), before.Tag)
			require.NoError(t, err)
			_, err = recorder.Store(frozen{memory, before}).Get(t.Context(), "shop.events.json")
			require.NoError(t, err)
		}
		err := leasecheck.Check(recorder.History(), patience)
		require.Equal(t, stale, errors.Is(err, leasecheck.ErrNotLinearizable), err)
	}
}

// frozen is a store that returns one write for ever.
type frozen struct {
	store.Store
	object store.Object
}

func (f frozen) Get(context.Context, string) (store.Object, error) { return f.object, nil }
