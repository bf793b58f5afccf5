package changes

import (
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/shared/mongodb"
)

// ErrFailing reports a source that has returned only transient errors for too long. Another process
// may do better.
var ErrFailing = errors.New("MongoDB has answered with errors for too long")

// errorHistory counts the errors since the stream last made progress. It belongs to one goroutine;
// the zero value has none.
type errorHistory struct {
	since            time.Time // when the first error occurred; zero: there was none
	unexplained      int       // responses that are not known to be transient
	firstUnexplained time.Time // when the first of these occurred
}

const (
	// maxUnexplained and minUnexplainedTime are how often, and for how long, the server may return
	// errors that are not known to be transient before they count as permanent. The error of a
	// pipeline stage on one document occurs at each reading.
	maxUnexplained     = 5
	minUnexplainedTime = 30 * time.Second
	// oneByOneAfter is after how many such errors the reader starts to request events one by one.
	// An error stands for a whole response, including the events before the unreadable one.
	oneByOneAfter = 2
)

// record counts an error.
func (t *errorHistory) record(err error) {
	if t.since.IsZero() {
		t.since = time.Now()
	}
	if !mongodb.Answered(err) || mongodb.Passes(err) {
		return
	}
	if t.unexplained++; t.unexplained == 1 {
		t.firstUnexplained = time.Now()
	}
}

// isPermanent reports whether the server's errors count as permanent.
func (t *errorHistory) isPermanent() bool {
	return t.unexplained >= maxUnexplained && time.Since(t.firstUnexplained) >= minUnexplainedTime
}

// explain adds to a permanent error where it occurred and what to do.
func explain(err error, position string) error {
	where := "from its beginning"
	if position != "" {
		where = "after " + position
	}
	return fmt.Errorf("read change stream %s: %w: %s", where, err, remedyFor(err))
}

// remedyFor returns what to do about a permanent error.
func remedyFor(err error) string {
	if server, ok := errors.AsType[mongo.ServerError](err); ok {
		for _, code := range server.ErrorCodes() {
			if advice := fatalCodes[code]; advice != "" {
				return advice
			}
		}
	}
	return "MongoDB returns this error each time; check PIPELINE: one of its stages may fail on the next change"
}

// TooLargeRemedy returns what to do about a change that is too large for the deployment. ok is
// false for any other error.
func TooLargeRemedy(err error) (advice string, ok bool) {
	return tooLargeRemedy, mongodb.HasCode(err, mongodb.BSONObjectTooLarge)
}

// tooLargeRemedy is what to do about a change of more than 16 MB.
const tooLargeRemedy = "take the checkpoint past it with `producer token set --forward TOKEN`, with the token (_data) in MongoDB's error, and fix by " +
	"hand the effect of the change in the read models"
