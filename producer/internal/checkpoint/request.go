package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-cdc/sluice/producer/store"
)

// requestSuffix is the suffix of the object beside a checkpoint that holds an operator's last
// request for a snapshot. No stream's own object can have such a name: those end in .json.
//
// It is a separate object because only the leader changes the checkpoint. The operator replaces a
// request that is answered, and the leader writes its answer into the request.
const requestSuffix = ".json.request"

// Request is what an operator asks a stream's leader to do with a snapshot.
type Request struct {
	Stream string `json:"stream"`
	// ID distinguishes requests. A snapshot that a request starts has this id.
	ID      string         `json:"id"`
	Command RequestCommand `json:"command"`
	// Aggregates are the texts of the aggregates whose documents are published; empty means all.
	Aggregates []string `json:"aggregates,omitempty"`
	// Rate is how many documents per second are published; 0 means as configured.
	Rate int `json:"rate,omitempty"`
	// By names the operator's host, and At is its wall clock.
	By string    `json:"by"`
	At time.Time `json:"at"`
	// TakenBy names the leader that will carry out the request, which cannot be withdrawn while it
	// leads; empty before a leader has taken it.
	TakenBy string `json:"takenBy,omitempty"`
	// AnsweredBy names the leader that answered; empty while the request waits for one.
	AnsweredBy string    `json:"answeredBy,omitempty"`
	AnsweredAt time.Time `json:"answeredAt,omitzero"`
	// Refused is why the leader did not carry out the request.
	Refused string `json:"refused,omitempty"`
}

// RequestCommand is what an operator requests.
type RequestCommand string

// The commands of a request.
const (
	RequestStart RequestCommand = "start"
	// RequestPause and RequestResume stop and continue the reading of documents.
	RequestPause  RequestCommand = "pause"
	RequestResume RequestCommand = "resume"
	// RequestContinue accepts that rows of a chunk are published a second time.
	RequestContinue RequestCommand = "continue"
	// RequestStop ends a snapshot of single aggregates.
	RequestStop RequestCommand = "stop"
	// RequestWithdrawn replaces a request that no present leader has taken.
	RequestWithdrawn RequestCommand = "withdrawn"
)

// Waiting reports whether no leader has answered the request. r may be nil.
func (r *Request) Waiting() bool {
	return r != nil && r.AnsweredBy == "" && r.Command != RequestWithdrawn
}

// LastRequest reads the last request of an operator. It returns nil without one. Errors are the
// store's.
func (c *Checkpoint) LastRequest(ctx context.Context) (*Request, store.Tag, error) {
	var r *Request
	tag, err := c.readBeside(ctx, requestSuffix, &r)
	if err != nil {
		return nil, "", fmt.Errorf("read the operator's request: %w", err)
	}
	return r, tag, nil
}

// WriteRequest replaces the request that has this tag, or creates the first one if tag is empty.
// Errors: [ErrChanged], or the store's.
func (c *Checkpoint) WriteRequest(ctx context.Context, r Request, tag store.Tag) error {
	if err := c.writeBeside(ctx, requestSuffix, r, tag); err != nil {
		return fmt.Errorf("write the request: %w", err)
	}
	return nil
}

// readBeside reads an object beside the checkpoint into v, which is left as it is, with an empty
// tag, if there is no such object.
func (c *Checkpoint) readBeside(ctx context.Context, suffix string, v any) (store.Tag, error) {
	object, err := c.beside.Get(ctx, c.stream+suffix)
	switch {
	case errors.Is(err, ErrNotFound):
		return "", nil
	case err != nil:
		return "", err
	}
	if err := json.Unmarshal(object.Data, v); err != nil {
		return "", fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return object.Tag, nil
}

// writeBeside replaces the object beside the checkpoint that has this tag, or creates it if tag is
// empty.
func (c *Checkpoint) writeBeside(ctx context.Context, suffix string, v any, tag store.Tag) error {
	text, err := json.Marshal(v)
	switch {
	case err != nil:
	case tag == "":
		_, err = c.beside.Create(ctx, c.stream+suffix, text)
	default:
		_, err = c.beside.Put(ctx, c.stream+suffix, text, tag)
	}
	return err
}
