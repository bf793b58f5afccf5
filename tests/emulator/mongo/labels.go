package mongo

import (
	"slices"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
)

// retriable are the codes after which the same command may succeed elsewhere or later.
var retriable = []int32{6, 7, 89, 91, 134, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436}

// transient are the further codes after which a whole transaction may be tried again.
var transient = []int32{24, 112, 239, 246, 251, 267}

// resumable are the further codes after which a change stream may be reopened.
var resumable = []int32{63, 133, 150, 234, 13388}

// stateChange are the codes that make a client find the primary again.
var stateChange = []int32{91, 189, 10107, 11600, 11602, 13435, 13436}

// errSteppedDown ends what was waiting when the primary stepped down.
var errSteppedDown = mongoerr.New(mongoerr.InterruptedDueToStateChange, "operation was interrupted")

// withLabels adds the error labels a server generates from the code and the command.
func withLabels(r *request, e *mongoerr.Error) *mongoerr.Error {
	labels := slices.Clone(e.Labels)
	finishing := r.name == "commitTransaction" || r.name == "abortTransaction"
	switch {
	case r.multi && !finishing && slices.Contains(retriable, e.Code), r.multi && slices.Contains(transient, e.Code):
		labels = append(labels, "TransientTransactionError")
	case r.numbered && (!r.multi || finishing) && slices.Contains(retriable, e.Code):
		labels = append(labels, "RetryableWriteError")
	}
	if r.stream {
		switch {
		case e.Code == mongoerr.ChangeStreamFatalError || e.Code == mongoerr.ChangeStreamHistoryLost:
			labels = append(labels, "NonResumableChangeStreamError")
		case slices.Contains(retriable, e.Code) || slices.Contains(resumable, e.Code):
			labels = append(labels, "ResumableChangeStreamError")
		}
	}
	if len(labels) == len(e.Labels) {
		return e
	}
	out := *e
	out.Labels = labels
	return &out
}
