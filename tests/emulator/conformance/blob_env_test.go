package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/stretchr/testify/require"
)

// Lease ids the cases speak of.
const (
	idA = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
	idB = "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb"
	idC = "cccccccc-cccc-4ccc-8ccc-cccccccccccc"
)

// blobResult is the answer of a service: the zero value is success.
type blobResult struct {
	Status int
	Code   string
}

func resultOf(err error) (blobResult, error) {
	if err == nil {
		return blobResult{}, nil
	}
	refusal, ok := errors.AsType[*azcore.ResponseError](err)
	if !ok {
		return blobResult{}, err
	}
	return blobResult{refusal.StatusCode, refusal.ErrorCode}, nil
}

// blobEnv is one case's world: a container of its own with the blob "b".
type blobEnv struct {
	t    *testing.T
	ctx  context.Context //nolint:containedctx // a case's whole life; its steps are closures
	svc  *azblob.Client
	name string // of the container
	cc   *container.Client
	bc   *blockblob.Client

	etag     *azcore.ETag // of the blob as the case found it
	modified *time.Time
}

// newBlobEnv makes the container and the blob, whose content is "v1".
func newBlobEnv(t *testing.T, svc *azblob.Client, containerName string) *blobEnv {
	t.Helper()
	e := &blobEnv{t: t, ctx: t.Context(), svc: svc, name: containerName, cc: svc.ServiceClient().NewContainerClient(containerName)}
	e.bc = e.cc.NewBlockBlobClient("b")
	_, err := e.cc.Create(e.ctx, nil)
	require.NoError(t, err)
	require.NoError(t, e.put("v1", nil))
	e.remember()
	return e
}

// forCase returns the same world for another test function: a prepared case moves
// from the test that prepares to its own.
func (e *blobEnv) forCase(t *testing.T) *blobEnv {
	t.Helper()
	moved := *e
	moved.t, moved.ctx = t, t.Context()
	return &moved
}

func (e *blobEnv) remember() {
	props := e.props()
	e.etag, e.modified = props.ETag, props.LastModified
}

func (e *blobEnv) props() blob.GetPropertiesResponse {
	e.t.Helper()
	props, err := e.bc.GetProperties(e.ctx, nil)
	require.NoError(e.t, err)
	return props
}

func (e *blobEnv) lease(id string) *lease.BlobClient {
	c, err := lease.NewBlobClient(e.bc, &lease.BlobClientOptions{LeaseID: &id})
	require.NoError(e.t, err)
	return c
}

func (e *blobEnv) acquire(id string, seconds int32) error {
	_, err := e.lease(id).AcquireLease(e.ctx, seconds, nil)
	return err
}

// breaks breaks the lease; a negative period means none.
func (e *blobEnv) breaks(period int32) error {
	var opts *lease.BlobBreakOptions
	if period >= 0 {
		opts = &lease.BlobBreakOptions{BreakPeriod: &period}
	}
	_, err := e.lease(idC).BreakLease(e.ctx, opts)
	return err
}

func (e *blobEnv) put(content string, cond *blob.AccessConditions) error {
	_, err := e.bc.UploadBuffer(e.ctx, []byte(content), &blockblob.UploadBufferOptions{AccessConditions: cond})
	return err
}

// get returns the content of the blob, or "" if the read is refused.
func (e *blobEnv) get(cond *blob.AccessConditions, rng blob.HTTPRange) (string, error) {
	resp, err := e.bc.DownloadStream(e.ctx, &blob.DownloadStreamOptions{AccessConditions: cond, Range: rng})
	if err != nil {
		return "", err
	}
	if resp.ErrorCode != nil { // the SDK gives a 304 without an error and without a body
		return "", &azcore.ResponseError{StatusCode: http.StatusNotModified, ErrorCode: *resp.ErrorCode}
	}
	defer func() { _ = resp.Body.Close() }() // the body has been read
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// content requires the blob to be exactly this.
func (e *blobEnv) content(want string) error {
	got, err := e.get(nil, blob.HTTPRange{})
	require.Equal(e.t, want, got)
	return err
}

// state requires the lease to be in this state.
func (e *blobEnv) state(want lease.StateType) error {
	require.Equal(e.t, want, *e.props().LeaseState)
	return nil
}

func withLease(id string) *blob.AccessConditions {
	return &blob.AccessConditions{LeaseAccessConditions: &blob.LeaseAccessConditions{LeaseID: &id}}
}

func modified(m blob.ModifiedAccessConditions) *blob.AccessConditions {
	return &blob.AccessConditions{ModifiedAccessConditions: &m}
}

var otherETag = to.Ptr(azcore.ETag(`"0x8DEADBEEF000000"`))

// enter brings the blob's lease, by idA, into a state. For Expired it only
// begins the 15 seconds.
func (e *blobEnv) enter(s lease.StateType) error {
	switch s {
	case lease.StateTypeLeased:
		return e.acquire(idA, -1)
	case lease.StateTypeExpired:
		return e.acquire(idA, 15)
	case lease.StateTypeBreaking:
		return errors.Join(e.acquire(idA, -1), e.breaks(60))
	case lease.StateTypeBroken:
		return errors.Join(e.acquire(idA, -1), e.breaks(0))
	case lease.StateTypeAvailable:
	}
	return nil
}

// awaitState polls until the lease is in the state: expiry is no event that
// one could wait for.
func (e *blobEnv) awaitState(want lease.StateType) error {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(40 * time.Second)
	for {
		if *e.props().LeaseState == want {
			return nil
		}
		select {
		case <-ticker.C:
		case <-deadline:
			return fmt.Errorf("the lease never became %s", want)
		}
	}
}

// newBlobClient returns a client without retries, so that each answer is seen.
func newBlobClient(t *testing.T, connectionString string, transport policy.Transporter) *azblob.Client {
	t.Helper()
	client, err := azblob.NewClientFromConnectionString(connectionString, &azblob.ClientOptions{ClientOptions: azcore.ClientOptions{
		Transport: transport, Retry: policy.RetryOptions{MaxRetries: -1},
	}})
	require.NoError(t, err)
	return client
}

// stage stages one block.
func (e *blobEnv) stage(id, content string, leaseID *string) error {
	opts := &blockblob.StageBlockOptions{}
	if leaseID != nil {
		opts.LeaseAccessConditions = &blob.LeaseAccessConditions{LeaseID: leaseID}
	}
	body := struct{ io.ReadSeekCloser }{nopCloser{bytes.NewReader([]byte(content))}}
	_, err := e.bc.StageBlock(e.ctx, id, body, opts)
	return err
}

type nopCloser struct{ *bytes.Reader }

func (nopCloser) Close() error { return nil }

var (
	okay             = blobResult{}
	badRequest       = blobResult{http.StatusBadRequest, "InvalidHeaderValue"}
	containerMissing = blobResult{http.StatusNotFound, "ContainerNotFound"}
	blobMissing      = blobResult{http.StatusNotFound, "BlobNotFound"}
	notModified      = blobResult{http.StatusNotModified, "ConditionNotMet"}
	notMet           = blobResult{http.StatusPreconditionFailed, "ConditionNotMet"}
	blobExists       = blobResult{http.StatusConflict, "BlobAlreadyExists"}

	leasePresent       = blobResult{http.StatusConflict, "LeaseAlreadyPresent"}
	leaseMismatch      = blobResult{http.StatusConflict, "LeaseIdMismatchWithLeaseOperation"}
	leaseNotPresent    = blobResult{http.StatusConflict, "LeaseNotPresentWithLeaseOperation"}
	breakingNoAcquire  = blobResult{http.StatusConflict, "LeaseIsBreakingAndCannotBeAcquired"}
	breakingNoChange   = blobResult{http.StatusConflict, "LeaseIsBreakingAndCannotBeChanged"}
	brokenNoRenew      = blobResult{http.StatusConflict, "LeaseIsBrokenAndCannotBeRenewed"}
	leaseIDMissing     = blobResult{http.StatusPreconditionFailed, "LeaseIdMissing"}
	blobLeaseMismatch  = blobResult{http.StatusPreconditionFailed, "LeaseIdMismatchWithBlobOperation"}
	blobLeaseNotThere  = blobResult{http.StatusPreconditionFailed, "LeaseNotPresentWithBlobOperation"}
	blobLeaseLost      = blobResult{http.StatusPreconditionFailed, "LeaseLost"}
	unsatisfiable      = blobResult{http.StatusBadRequest, "UnsatisfiableCondition"}
	rangeNotSatisfied  = blobResult{http.StatusRequestedRangeNotSatisfiable, "InvalidRange"}
	md5Differs         = blobResult{http.StatusBadRequest, "Md5Mismatch"}
	containerExists    = blobResult{http.StatusConflict, "ContainerAlreadyExists"}
	invalidBlockList   = blobResult{http.StatusBadRequest, "InvalidBlockList"}
	invalidBlobOrBlock = blobResult{http.StatusBadRequest, "InvalidBlobOrBlock"}
)
