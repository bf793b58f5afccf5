package mongodb

import (
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// passing holds the codes of transient errors: MongoDB's, except the last. MongoDB also gives the
// label ResumableChangeStreamError to those that end a change stream; a deployment that only speaks
// the protocol may not know the label.
var passing = []int{
	HostUnreachable, HostNotFound, CursorNotFound, MaxTimeMSExpired, StaleShardVersion, NetworkTimeout, ShutdownInProgress,
	FailedToSatisfyReadPreference, ReadConcernMajorityNotAvailable, StaleEpoch, QueryPlanKilled, PrimarySteppedDown, NetworkInterfaceTimeout,
	RetryChangeStream, CursorKilled, ExceededTimeLimit, SocketException, NotWritablePrimary, Interrupted, InterruptedAtShutdown,
	InterruptedDueToReplStateChange, StaleConfig, NotPrimaryNoSecondaryOk, NotPrimaryOrSecondary,
	CosmosTooManyRequests, // Azure Cosmos DB
}

// Passing reports whether errors with a code are transient.
func Passing(code int) bool { return slices.Contains(passing, code) }

// Passes reports whether an error is the server's and transient, so that it does not concern the
// request itself.
func Passes(err error) bool {
	server, ok := errors.AsType[mongo.ServerError](err)
	return ok && (server.HasErrorLabel("ResumableChangeStreamError") || slices.ContainsFunc(server.ErrorCodes(), Passing))
}

// Answered reports whether an error is the server's answer, as opposed to one of the network or of
// the driver, which have no code.
func Answered(err error) bool {
	server, ok := errors.AsType[mongo.ServerError](err)
	return ok && slices.ContainsFunc(server.ErrorCodes(), func(code int) bool { return code != 0 })
}
