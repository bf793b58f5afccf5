package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/sluice-cdc/sluice/producer/store"
)

// Errors of requests to the store. All others (throttling, timeouts, an unreachable network) do not
// show who leads, and are retried.
var (
	// ErrNotFound: the object, or the blob container, does not exist.
	ErrNotFound = store.ErrNotFound
	// ErrChanged: another client replaced the object since it was read, or created it first.
	ErrChanged = store.ErrChanged
	// ErrLeaseHeld: another client holds the lease.
	ErrLeaseHeld = errors.New("lease is held by another client")
	// ErrLeaseLost: the client no longer holds the lease under which it made the request.
	ErrLeaseLost = errors.New("lease is lost")
)

// errorsByCode maps the service's error codes to the errors of this package. Source:
// https://learn.microsoft.com/rest/api/storageservices/lease-blob and /blob-service-error-codes.
var errorsByCode = map[bloberror.Code]error{
	bloberror.BlobNotFound:      ErrNotFound,
	bloberror.ContainerNotFound: ErrNotFound,

	bloberror.LeaseAlreadyPresent:                ErrLeaseHeld,
	bloberror.LeaseIDMissing:                     ErrLeaseHeld,
	bloberror.LeaseIsBreakingAndCannotBeAcquired: ErrLeaseHeld,

	bloberror.LeaseLost:                         ErrLeaseLost,
	bloberror.LeaseIDMismatchWithBlobOperation:  ErrLeaseLost,
	bloberror.LeaseIDMismatchWithLeaseOperation: ErrLeaseLost,
	bloberror.LeaseNotPresentWithBlobOperation:  ErrLeaseLost,
	bloberror.LeaseNotPresentWithLeaseOperation: ErrLeaseLost,
	bloberror.LeaseIsBrokenAndCannotBeRenewed:   ErrLeaseLost,

	bloberror.ConditionNotMet:   ErrChanged,
	bloberror.BlobAlreadyExists: ErrChanged,
}

// responseError is an error response of the service. The SDK's own error prints the whole response
// over a dozen lines; this one prints a short text and keeps the rest for errors.As.
type responseError struct {
	meaning error // one of the sentinels, or nil
	cause   *azcore.ResponseError
}

func (a *responseError) Error() string {
	code := cmp.Or(a.cause.ErrorCode, http.StatusText(a.cause.StatusCode))
	if a.meaning == nil {
		return fmt.Sprintf("storage answered %d %s", a.cause.StatusCode, code)
	}
	return fmt.Sprintf("%v (%d %s)", a.meaning, a.cause.StatusCode, code)
}

func (a *responseError) Unwrap() []error {
	if a.meaning == nil {
		return []error{a.cause}
	}
	return []error{a.meaning, a.cause}
}

func translate(err error) error {
	response, ok := errors.AsType[*azcore.ResponseError](err)
	if !ok {
		return err
	}
	meaning := errorsByCode[bloberror.Code(response.ErrorCode)]
	if response.ErrorCode == "" {
		// A proxy may respond without a code. The status is enough.
		switch response.StatusCode {
		case http.StatusNotFound:
			meaning = ErrNotFound
		case http.StatusPreconditionFailed:
			meaning = ErrChanged
		}
	}
	return &responseError{meaning, response}
}
