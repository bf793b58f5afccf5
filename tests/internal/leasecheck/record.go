package leasecheck

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-cdc/sluice/producer/store"
)

// Doer answers requests: it is a transport of the Blob SDK.
type Doer interface {
	Do(r *http.Request) (*http.Response, error)
}

// Recorder records the requests of clients for one blob and their answers. It is safe for
// concurrent use.
type Recorder struct {
	path    string // how the blob's URL ends
	began   time.Time
	clients atomic.Int64

	mu      sync.Mutex
	history []Operation // guarded by mu, in the order in which they returned
}

// NewRecorder returns a recorder of requests for the blob whose URL ends with path.
func NewRecorder(path string) *Recorder { return &Recorder{path: path, began: time.Now()} }

// Client returns the transport of one more client.
func (r *Recorder) Client(next Doer) Doer { return &client{r, next, int(r.clients.Add(1))} }

// History returns what was recorded so far.
func (r *Recorder) History() []Operation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Operation(nil), r.history...)
}

type client struct {
	recorder *Recorder
	next     Doer
	number   int
}

// Do sends a request and records it if it is for the blob.
func (c *client) Do(request *http.Request) (*http.Response, error) {
	o, ok, err := c.operation(request)
	if err != nil || !ok {
		if err == nil {
			return c.next.Do(request)
		}
		return nil, err
	}
	o.Called = time.Since(c.recorder.began)
	response, err := c.next.Do(request)
	if err == nil {
		err = o.answered(response)
	}
	o.Returned = time.Since(c.recorder.began)
	c.recorder.mu.Lock()
	c.recorder.history = append(c.recorder.history, o)
	c.recorder.mu.Unlock()
	return response, err
}

// operation reads the operation from a request.
func (c *client) operation(r *http.Request) (o Operation, ok bool, err error) {
	if !strings.HasSuffix(r.URL.Path, c.recorder.path) {
		return o, false, nil
	}
	o = Operation{
		Client: c.number, LeaseID: header(r.Header, "x-ms-lease-id"), IfMatch: header(r.Header, "If-Match"),
		IfNoneMatch: header(r.Header, "If-None-Match") == "*", Outcome: Unknown,
	}
	switch comp := r.URL.Query().Get("comp"); {
	case comp == "lease":
		o.Kind = Kind(header(r.Header, "x-ms-lease-action"))
		if o.Kind == Acquire {
			o.LeaseID = header(r.Header, "x-ms-proposed-lease-id")
			seconds, _ := strconv.Atoi(header(r.Header, "x-ms-lease-duration")) // the storage refuses an invalid one
			o.Duration = time.Duration(seconds) * time.Second
		}
	case comp == "" && r.Method == http.MethodPut:
		o.Kind = Write
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return o, false, err
		}
		r.Body = io.NopCloser(bytes.NewReader(text))
		o.Value = hash(text)
	case comp == "" && r.Method == http.MethodGet:
		o.Kind = Read
	default:
		return o, false, nil
	}
	return o, true, nil
}

// answered reads the answer of the storage.
func (o *Operation) answered(r *http.Response) error {
	switch {
	case r.StatusCode < http.StatusMultipleChoices:
		o.Outcome = Done
	case r.StatusCode < http.StatusInternalServerError:
		o.Outcome = Refused
		return nil
	default:
		return nil
	}
	o.ETag = r.Header.Get("ETag")
	if o.Kind != Read {
		return nil
	}
	state := r.Header.Get("x-ms-lease-state")
	o.Leased = state == "leased" || state == "breaking"
	text, err := io.ReadAll(r.Body)
	_ = r.Body.Close() // the body has been read, or the error is known
	if err != nil {
		o.Outcome = Unknown
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(text))
	o.Value = hash(text)
	return nil
}

func hash(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// header returns a header as the SDK sets it: under its name in lower case, which Header.Get does
// not find.
func header(h http.Header, name string) string {
	if values := h[name]; len(values) > 0 {
		return values[0]
	}
	return h.Get(name)
}

// Store returns a store of one more client, whose requests for the object named as the blob are
// recorded. Its lease is a part of the object, so only reads and writes are.
func (r *Recorder) Store(next store.Store) store.Store {
	return recordedStore{next, r, int(r.clients.Add(1))}
}

type recordedStore struct {
	store.Store
	recorder *Recorder
	number   int
}

// record records a request, which returns the tag and the data that it wrote or read.
func (s recordedStore) record(name string, o Operation, request func() (store.Object, error)) (store.Object, error) {
	o.Client, o.Outcome, o.Called = s.number, Unknown, time.Since(s.recorder.began)
	result, err := request()
	if !strings.HasSuffix(s.recorder.path, "/"+name) || errors.Is(err, store.ErrTooLarge) {
		return result, err
	}
	o.Returned = time.Since(s.recorder.began)
	switch {
	case err == nil:
		o.Outcome, o.ETag, o.Value = Done, string(result.Tag), hash(result.Data)
	case errors.Is(err, store.ErrChanged), errors.Is(err, store.ErrNotFound):
		o.Outcome = Refused
	}
	s.recorder.mu.Lock()
	defer s.recorder.mu.Unlock()
	s.recorder.history = append(s.recorder.history, o)
	return result, err
}

// Get implements [store.Store].
func (s recordedStore) Get(ctx context.Context, name string) (store.Object, error) {
	return s.record(name, Operation{Kind: Read}, func() (store.Object, error) { return s.Store.Get(ctx, name) })
}

// Put implements [store.Store].
func (s recordedStore) Put(ctx context.Context, name string, data []byte, tag store.Tag) (store.Tag, error) {
	written, err := s.record(name, Operation{Kind: Write, IfMatch: string(tag), Value: hash(data)}, func() (store.Object, error) {
		next, err := s.Store.Put(ctx, name, data, tag)
		return store.Object{Tag: next, Data: data}, err
	})
	return written.Tag, err
}

// Create implements [store.Store].
func (s recordedStore) Create(ctx context.Context, name string, data []byte) (store.Tag, error) {
	written, err := s.record(name, Operation{Kind: Write, IfNoneMatch: true, Value: hash(data)}, func() (store.Object, error) {
		tag, err := s.Store.Create(ctx, name, data)
		return store.Object{Tag: tag, Data: data}, err
	})
	return written.Tag, err
}
