package state

import "net/http"

// Error is a refusal as the service words it: the HTTP status, the storage
// error code (x-ms-error-code) and a message for people.
type Error struct {
	Status  int
	Code    string
	Message string
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// NewError makes an error of the given status, storage code and message.
func NewError(status int, code, message string) *Error {
	return &Error{Status: status, Code: code, Message: message}
}

// The refusals of this package, by their storage error code. They are compared
// with errors.Is; none carries data.
var (
	ErrContainerNotFound      = NewError(http.StatusNotFound, "ContainerNotFound", "The specified container does not exist.")
	ErrContainerAlreadyExists = NewError(http.StatusConflict, "ContainerAlreadyExists", "The specified container already exists.")
	ErrBlobNotFound           = NewError(http.StatusNotFound, "BlobNotFound", "The specified blob does not exist.")
	ErrBlobAlreadyExists      = NewError(http.StatusConflict, "BlobAlreadyExists", "The specified blob already exists.")
	ErrConditionNotMet        = NewError(http.StatusPreconditionFailed, "ConditionNotMet", "The condition specified using HTTP conditional header(s) is not met.")
	ErrNotModified            = NewError(http.StatusNotModified, "ConditionNotMet", "The condition specified using HTTP conditional header(s) is not met.")
	ErrUnsatisfiable          = NewError(http.StatusBadRequest, "UnsatisfiableCondition", "The request includes an unsatisfiable condition for this operation.")
	ErrMultipleConditions     = NewError(http.StatusBadRequest, "MultipleConditionHeadersNotSupported", "Multiple condition headers are not supported.")
	ErrInvalidRange           = NewError(http.StatusRequestedRangeNotSatisfiable, "InvalidRange", "The range specified is invalid for the current size of the resource.")
	ErrInvalidBlockList       = NewError(http.StatusBadRequest, "InvalidBlockList", "The specified block list is invalid.")
	ErrInvalidBlobOrBlock     = NewError(http.StatusBadRequest, "InvalidBlobOrBlock", "The specified blob or block content is invalid: block ids of one blob must have the same length.")

	ErrInvalidLeaseDuration   = NewError(http.StatusBadRequest, "InvalidHeaderValue", "x-ms-lease-duration must be 15 to 60 seconds, or -1.")
	ErrInvalidBreakPeriod     = NewError(http.StatusBadRequest, "InvalidHeaderValue", "x-ms-lease-break-period must be 0 to 60 seconds.")
	ErrLeaseAlreadyPresent    = NewError(http.StatusConflict, "LeaseAlreadyPresent", "There is already a lease present.")
	ErrLeaseBreakingNoAcquire = NewError(http.StatusConflict, "LeaseIsBreakingAndCannotBeAcquired", "The lease ID matched, but the lease is currently in breaking state and cannot be acquired until it is broken.")
	ErrLeaseBreakingNoChange  = NewError(http.StatusConflict, "LeaseIsBreakingAndCannotBeChanged", "The lease ID matched, but the lease is currently in breaking state and cannot be changed.")
	ErrLeaseBrokenNoRenew     = NewError(http.StatusConflict, "LeaseIsBrokenAndCannotBeRenewed", "The lease ID matched, but the lease has been broken explicitly and cannot be renewed.")
	ErrLeaseNotPresentLease   = NewError(http.StatusConflict, "LeaseNotPresentWithLeaseOperation", "There is currently no lease on the blob.")
	ErrLeaseMismatchLease     = NewError(http.StatusConflict, "LeaseIdMismatchWithLeaseOperation", "The lease ID specified did not match the lease ID for the blob.")
	ErrLeaseIDMissing         = NewError(http.StatusPreconditionFailed, "LeaseIdMissing", "There is currently a lease on the blob and no lease ID was specified in the request.")
	ErrLeaseMismatchBlob      = NewError(http.StatusPreconditionFailed, "LeaseIdMismatchWithBlobOperation", "The lease ID specified did not match the lease ID for the blob.")
	ErrLeaseNotPresentBlob    = NewError(http.StatusPreconditionFailed, "LeaseNotPresentWithBlobOperation", "There is currently no lease on the blob.")
	ErrLeaseLost              = NewError(http.StatusPreconditionFailed, "LeaseLost", "A lease ID was specified, but the lease for the blob has expired.")
)
