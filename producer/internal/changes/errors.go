package changes

import (
	"errors"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

var (
	// ErrHistoryLost: the server cannot go on from the token, because its oplog no longer reaches back to it or because
	// the token does not belong to this stream.
	ErrHistoryLost = errors.New("the change stream cannot go on from the checkpoint: changes in between may be lost")
	// ErrUnsortable: the deployment's resume tokens cannot be compared, which positions need.
	ErrUnsortable = errors.New("this deployment's resume tokens are not sortable hex, which positions rely on; it is not supported yet")
)

// remedy is what to do about an error of the change stream.
type remedy int

const (
	reopen      remedy = iota // anything that waiting can heal: the network, an election, a killed cursor
	historyLost               // the policy ON_HISTORY_LOST decides
	fatal                     // waiting cannot heal it: people must change something
)

// The server's codes that are not plainly to be waited out. Names as in the server's error_codes.yml.
const (
	codeUnauthorized             = 13
	codeAuthenticationFailed     = 18
	codeUnrecognizedStageName    = 40324
	codeNotAReplicaSet           = 40573
	codeCappedPositionLost       = 136
	codeInvalidResumeToken       = 260
	codeChangeStreamFatalError   = 280
	codeChangeStreamHistoryLost  = 286
	codeInvalidPipelineOperator  = 168
	codeInvalidNamespace         = 73
	codeChangeStreamNotSupported = 115 // CommandNotSupported
)

// classify chooses the remedy by code alone; messages differ between versions and vendors.
func classify(err error) remedy {
	server, ok := errors.AsType[mongo.ServerError](err)
	if !ok {
		return reopen
	}
	for _, code := range server.ErrorCodes() {
		switch code {
		case codeChangeStreamHistoryLost, codeChangeStreamFatalError, codeInvalidResumeToken, codeCappedPositionLost:
			return historyLost
		case codeUnauthorized, codeAuthenticationFailed, codeUnrecognizedStageName, codeNotAReplicaSet,
			codeInvalidPipelineOperator, codeInvalidNamespace, codeChangeStreamNotSupported:
			return fatal
		}
	}
	return reopen
}
