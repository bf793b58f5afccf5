package changes

import (
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/shared/mongodb"
)

// ErrFailing is a source that has answered with errors alone for too long, of kinds that pass. Another process may fare better.
var ErrFailing = errors.New("MongoDB has answered with errors for too long")

// trouble counts the errors since the stream last went on. It belongs to one goroutine; the zero value has met none.
type trouble struct {
	since   time.Time // when the first one came; zero: there was none
	answers int       // how many were answers that are not known to pass
	refused time.Time // when the first of these came
}

const (
	// mostAnswers and refusedFor bound how often, and for how long, the server may answer with errors that are not known to pass before
	// they are taken to stay: those of a stage of the pipeline on one document come at each reading.
	mostAnswers = 5
	refusedFor  = 30 * time.Second
	// oneByOne is with which of these answers the reader begins to ask for the events one by one. An error stands for a whole answer,
	// also for the events before the one that cannot be read.
	oneByOne = 2
)

// met counts an error.
func (t *trouble) met(err error) {
	if t.since.IsZero() {
		t.since = time.Now()
	}
	if !mongodb.Answered(err) || mongodb.Passes(err) {
		return
	}
	if t.answers++; t.answers == 1 {
		t.refused = time.Now()
	}
}

// stays reports whether the server's errors are taken to stay.
func (t *trouble) stays() bool {
	return t.answers >= mostAnswers && time.Since(t.refused) >= refusedFor
}

// lasts is how long the stream has not gone on.
func (t *trouble) lasts() time.Duration {
	if t.since.IsZero() {
		return 0
	}
	return time.Since(t.since)
}

// explain adds to an error that does not recover by itself where it came, and what to do.
func explain(err error, position string) error {
	where := "from its beginning"
	if position != "" {
		where = "behind " + position
	}
	return fmt.Errorf("read change stream %s: %w: %s", where, err, advice(err))
}

// advice is what to do about an error that does not recover by itself.
func advice(err error) string {
	if server, ok := errors.AsType[mongo.ServerError](err); ok {
		for _, code := range server.ErrorCodes() {
			if advice := refused[code]; advice != "" {
				return advice
			}
		}
	}
	return "MongoDB answers so each time; check PIPELINE, of which a stage may fail on the next change"
}

// TooLarge is what to do about a change that the deployment cannot give, and nil about any other error.
func TooLarge(err error) (advice string, ok bool) {
	return tooLarge, mongodb.HasCode(err, mongodb.BSONObjectTooLarge)
}

// tooLarge is what to do about a change of more than 16 MB.
const tooLarge = "take the checkpoint past it with `producer token set --forward TOKEN`, by the token (_data) that MongoDB's error names, and correct by " +
	"hand what the change made of the read models"
