package operator

import (
	"bytes"
	"context"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/google/uuid"

	"github.com/sluice-cdc/sluice/shared/checkup"
)

// examineClaims writes a blob to the container for the bodies of large events and refused messages,
// and deletes it again.
func (s *doctor) examineClaims(ctx context.Context, e *checkup.Findings) {
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
