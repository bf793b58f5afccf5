package operator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/google/uuid"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/shared/checkup"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

const blobRoleRemedy = "give the identity the role Storage Blob Data Contributor on the container (with a connection string: " +
	"check its account key)"

// examineBlob acquires a lease and makes conditional writes on a blob of its own.
func (s *Stream) examineBlob(ctx context.Context, e *checkup.Findings) {
	if !s.examineContainer(ctx, e) {
		return
	}
	s.examineStore(ctx, e)
	name := s.Name + ".doctor-" + uuid.NewString()
	took, err := s.rehearse(ctx, name)
	if err != nil {
		problem, remedy := s.explainStore(err)
		if errors.Is(err, errUnconditional) {
			remedy = "use Azure Blob storage or Azurite: this store ignores conditions, on which leadership depends"
		}
		e.Problem("lease and write", remedy, "%s", problem)
		return
	}
	e.OK("lease and write", "a lease can be acquired and a conditional write made (on a scratch checkpoint, deleted again)")
	s.examineTimes(e, took)
}

// examineContainer checks the container, the checkpoint and the last failure. It returns false if
// there is no container.
func (s *Stream) examineContainer(ctx context.Context, e *checkup.Findings) bool {
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	if s.Container != nil {
		ask := func() error {
			_, err := s.Container.GetProperties(ctx, nil)
			return err
		}
		if err := ask(); err != nil {
			problem, remedy := explainBlob(err)
			if statusCode(err) == http.StatusNotFound {
				problem = "it does not exist"
				remedy = "create it, or let a producer do so at its first start (its identity needs Storage Blob Data Contributor on " +
					"the account); or check BLOB_CONTAINER"
			}
			e.Problem("blob container", remedy, "%s", problem)
			return false
		}
		e.OK("blob container", "it exists; it responds in %s", checkup.Fastest(ask))
	}
	return s.examineCheckpoint(ctx, e)
}

// examineStore lets the store examine the service behind it.
func (s *Stream) examineStore(ctx context.Context, e *checkup.Findings) {
	if s.Checks.Store == nil {
		return
	}
	const check = "checkpoint store"
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	if err := s.Checks.Store(ctx); err != nil {
		e.Problem(check, "correct the settings of the service; until then it may lose the checkpoint",
			"%s", strings.ReplaceAll(err.Error(), "\n", ". "))
		return
	}
	e.OK(check, "its service is configured to keep what it acknowledges")
}

// examineCheckpoint checks the checkpoint and the last failure. It returns false if the store does
// not answer.
func (s *Stream) examineCheckpoint(ctx context.Context, e *checkup.Findings) bool {
	snapshot, err := s.observe(ctx)
	switch {
	case errors.Is(err, checkpoint.ErrNotFound) && errors.Is(s.checkpoint().Missing(ctx), checkpoint.ErrGone):
		e.Problem("checkpoint", fmt.Sprintf("restore %s.json; to begin again instead, see the output of `producer status`", s.Name),
			"%v", checkpoint.ErrGone)
	case errors.Is(err, checkpoint.ErrNotFound):
		e.OK("checkpoint", "there is no checkpoint: a producer that starts begins a new stream")
	case errors.Is(err, checkpoint.ErrMoved):
		e.Problem("checkpoint", "use the settings of that store", "%v", err)
	case errors.Is(err, checkpoint.ErrUnreadable):
		e.Problem("checkpoint", fmt.Sprintf("restore a readable copy of %s.json, or run the release that wrote it", s.Name), "%v", err)
	case err != nil:
		problem, remedy := s.explainStore(err)
		e.Problem("checkpoint", remedy, "%s", problem)
		return s.Container != nil
	default:
		e.OK("checkpoint", "epoch %d, %s, lease %s", snapshot.Record.Epoch, leaderText(snapshot.Record.Leader, snapshot.LeaseState), snapshot.LeaseState)
		s.examineFailure(ctx, e, snapshot)
		s.examinePacks(ctx, e)
	}
	return true
}

// examinePacks reports whether leaders send packs, and what fills them.
func (s *Stream) examinePacks(ctx context.Context, e *checkup.Findings) {
	const check = "packs"
	if s.PackEvents == 0 {
		return
	}
	bounded, cancel := s.withTimeout(ctx)
	defer cancel()
	switch p, _, err := s.checkpoint().Packs(bounded); {
	case err != nil:
		problem, remedy := s.explainStore(err)
		e.Problem(check, remedy, "%s", problem)
	case !p.On:
		e.OK(check, "PACK=auto has no effect until an operator confirms that readers know packs: `producer packs on --readers-know`")
	default:
		fill := ""
		if s.SessionKey == (envelope.SessionKey{}) {
			fill = ". Only events of one aggregate share a message; with SESSION_KEY=bucket:64, those of many do"
		}
		e.OK(check, "up to %d events of a session that wait are one message, since %s%s", s.PackEvents, p.At.Format(time.RFC3339), fill)
	}
}

// examineFailure reports the last failure, and whether the stream has continued since.
func (s *Stream) examineFailure(ctx context.Context, e *checkup.Findings, snapshot checkpoint.Snapshot) {
	const check = "last failure"
	f, err := s.lastFailure(ctx)
	switch {
	case err != nil:
		problem, remedy := s.explainStore(err)
		e.Problem(check, remedy, "%s", problem)
	case f == nil:
		e.OK(check, "none")
	case f.Resolved(snapshot):
		e.OK(check, "at %s, of %s; %s: %s", f.At.Format(time.RFC3339), f.Instance, since(snapshot.Leased), f.Error)
	default:
		e.Problem(check, "follow its advice, then start the producer again if it has ended; to give up an event: `producer token set --forward`",
			"the stream has been stopped since %s (%s, epoch %d): %s", f.At.Format(time.RFC3339), f.Instance, f.Epoch, f.Error)
	}
}

var errUnconditional = errors.New("a write over a record that had changed was accepted")

// rehearse does with a scratch blob what a leader does with the checkpoint, and returns how long
// each heartbeat took: at least one.
func (s *Stream) rehearse(ctx context.Context, name string) (took []time.Duration, err error) {
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	scratch := s.Open(name)
	record := checkpoint.Record{Stream: name, Leader: s.Operator, HeartbeatAt: time.Now()}
	if err := scratch.Create(ctx, record); err != nil {
		return nil, err
	}
	leaseID := uuid.NewString()
	defer func() {
		ctx, cancel := s.withTimeout(context.WithoutCancel(ctx))
		defer cancel()
		_ = scratch.Release(ctx, leaseID) // not held if acquiring it failed
		if gone := scratch.Remove(ctx); err == nil && gone != nil {
			err = fmt.Errorf("remove the scratch checkpoint %s.json: %w", name, gone)
		}
	}()
	first, err := scratch.Read(ctx)
	if err != nil {
		return nil, err
	}
	if err := scratch.Acquire(ctx, leaseID, s.LeaseDuration, first.Tag); err != nil {
		return nil, err
	}
	if took, err = s.rehearseHeartbeats(ctx, scratch, record, leaseID, first.Tag); err != nil {
		return nil, err
	}
	if _, err := scratch.Write(ctx, record, leaseID, first.Tag); !errors.Is(err, checkpoint.ErrChanged) {
		return nil, errors.Join(errUnconditional, err)
	}
	return took, nil
}

func statusCode(err error) int {
	if response, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return response.StatusCode
	}
	return 0
}

// explainStore returns what an error of the checkpoint store means.
func (s *Stream) explainStore(err error) (problem, remedy string) {
	if s.Container != nil {
		return explainBlob(err)
	}
	return fmt.Sprintf("the checkpoint store does not respond as it must: %v", err),
		"check CHECKPOINT_STORE and the store's settings, the network, and the permission to read and write there"
}

// explainBlob distinguishes a refusal from an unreachable service. The SDK's error prints a whole
// response over many lines, so it is not quoted.
func explainBlob(err error) (problem, remedy string) {
	response, ok := errors.AsType[*azcore.ResponseError](err)
	if !ok {
		return fmt.Sprintf("storage does not respond: %v", err),
			"check BLOB_ACCOUNT_URL (or BLOB_CONNECTION_STRING), the network, and that an identity is signed in"
	}
	problem = fmt.Sprintf("storage answered %d %s", response.StatusCode, response.ErrorCode)
	refused := response.StatusCode == http.StatusForbidden || response.StatusCode == http.StatusUnauthorized
	if refused && response.RawResponse != nil {
		if off := checkup.Clock(response.RawResponse.Header, time.Now()); off != "" {
			return problem + ": " + off, checkup.FixClock
		}
	}
	switch {
	case refused:
		return problem, blobRoleRemedy + "; a firewall of the storage account answers the same"
	case response.StatusCode == http.StatusTooManyRequests || response.StatusCode >= http.StatusInternalServerError:
		return problem, "try again; the service is busy or unreachable"
	}
	return problem, "see the error code in https://learn.microsoft.com/rest/api/storageservices/blob-service-error-codes"
}

// examineClaims writes a blob to the container for the bodies of large events and refused messages,
// and deletes it again.
func (s *Stream) examineClaims(ctx context.Context, e *checkup.Findings) {
	const check = "claim checks"
	if s.Checks.Claims == nil {
		e.OK(check, "not used: an event that is too large for a message, or that Service Bus refuses, stops the stream (ON_OVERSIZE=fail, ON_REFUSED=fail)")
		return
	}
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	scratch := s.Checks.Claims.NewBlockBlobClient(s.Name + "/doctor-" + uuid.NewString())
	_, err := scratch.Upload(ctx, streaming.NopCloser(bytes.NewReader([]byte("doctor"))), nil)
	if err == nil {
		_, err = scratch.Delete(ctx, nil)
	}
	switch {
	case err == nil:
		e.OK(check, "bodies can be stored (on a scratch blob, deleted again)")
	case statusCode(err) == http.StatusNotFound:
		e.Problem(check, "create it, or let the first body do so (the producer's identity needs Storage Blob Data Contributor on "+
			"the account); or check CLAIM_CHECK_CONTAINER", "the container does not exist")
	default:
		problem, remedy := explainBlob(err)
		e.Problem(check, remedy, "%s", problem)
	}
}
