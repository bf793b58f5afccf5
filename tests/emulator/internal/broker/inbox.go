package broker

import (
	"fmt"
	"sync"
	"time"
	"unicode/utf16"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/filter"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus/entity"
)

// Inbox is something messages are sent to: a queue or a topic.
type Inbox struct {
	path     string
	cfg      Inbound
	isTopic  bool
	sessions bool // a queue that requires them
	broker   *Broker

	mu        sync.Mutex
	outs      []*Entity // the queue itself, or the subscriptions
	deleted   bool
	after     []func()
	history   *history // nil without duplicate detection
	lastSeq   int64
	schedule  map[int64]*scheduled
	deadlines deadlines
	busy      int // sends to refuse
	accepted  int
	dropped   int
	accessed  time.Time // of the last send
	used      time.Time // last use of any kind
}

type scheduled struct {
	payload *Payload
	seq     int64
	at      time.Time // when it was sent
}

// Accepted describes a message to an observer.
type Accepted struct {
	Entity     string
	MessageID  string
	SessionID  string
	EnqueuedAt time.Time
	Body       []byte // the payload's; must not be changed
	// Duplicate is true when duplicate detection dropped the message.
	Duplicate bool
}

func newInbox(b *Broker, path string, cfg Inbound) *Inbox {
	in := &Inbox{path: path, cfg: cfg, broker: b, schedule: make(map[int64]*scheduled), used: time.Now()}
	if cfg.RequiresDuplicateDetection {
		if in.cfg.DuplicateDetectionWindow == 0 {
			in.cfg.DuplicateDetectionWindow = entity.DefaultDedupWindow
		}
		in.history = newHistory(in.cfg.DuplicateDetectionWindow)
	}
	return in
}

// MaxMessageBytes returns the limit of a message or batch; 0 means the namespace's.
func (in *Inbox) MaxMessageBytes() uint64 { return in.cfg.MaxMessageBytes }

// Filters returns how many filters are evaluated for each message: the rules of all subscriptions
// of a topic, and none of a queue.
func (in *Inbox) Filters() (n int) {
	if !in.isTopic {
		return 0
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, e := range in.outs {
		e.mu.Lock()
		n++
		if e.rules != nil {
			n += len(e.rules) - 1
		}
		e.mu.Unlock()
	}
	return n
}

// Path returns the entity's address.
func (in *Inbox) Path() string { return in.path }

func (in *Inbox) lock() time.Time {
	in.mu.Lock()
	now := time.Now()
	in.advance(now)
	return now
}

func (in *Inbox) unlock() {
	after := in.after
	in.after = nil
	in.mu.Unlock()
	run(after)
}

// advance enqueues scheduled messages that are due.
func (in *Inbox) advance(now time.Time) {
	for {
		d, ok := in.deadlines.due(now)
		if !ok {
			return
		}
		if in.schedule[d.schedule.seq] == d.schedule {
			delete(in.schedule, d.schedule.seq)
			in.used = d.at
			in.fanOut(d.schedule.payload, now)
		}
	}
}

// Send accepts all messages of a batch, in order, or none. Dropped duplicates count as
// accepted to the sender.
func (in *Inbox) Send(batch []*Payload) error {
	if err := in.check(batch); err != nil {
		return err
	}
	now := in.lock()
	defer in.unlock()
	if err := in.refusal(len(batch) == 1 && batch[0].carried != nil); err != nil {
		return err
	}
	in.accessed, in.used = now, now
	for _, p := range batch {
		in.accept(p, now)
	}
	return nil
}

// refusal returns why the inbox refuses sends now, or nil. Throttling does not apply to what the
// service itself forwards.
func (in *Inbox) refusal(forwarded bool) error {
	switch {
	case in.deleted:
		return refuse(NotFound, fmt.Sprintf("The messaging entity '%s' could not be found.", in.path))
	case in.cfg.SendDisabled:
		return refuse(EntityDisabled, descEntityDisabled)
	case in.busy > 0 && !forwarded:
		in.busy--
		return refuse(ServerBusy, descServerBusy)
	}
	return nil
}

// Schedule accepts messages that carry a time to appear at and returns their sequence numbers,
// by which they can be cancelled until then.
func (in *Inbox) Schedule(batch []*Payload) ([]int64, error) {
	if err := in.check(batch); err != nil {
		return nil, err
	}
	now := in.lock()
	defer in.unlock()
	if err := in.refusal(false); err != nil {
		return nil, err
	}
	in.accessed, in.used = now, now
	seqs := make([]int64, len(batch))
	for i, p := range batch {
		seqs[i] = in.accept(p, now)
	}
	return seqs, nil
}

// CancelScheduled removes scheduled messages; all must be there.
func (in *Inbox) CancelScheduled(seqs []int64) error {
	in.used = in.lock()
	defer in.unlock()
	for _, n := range seqs {
		if in.schedule[n] == nil {
			return refuse(MessageNotFound, "No scheduled message with that sequence number.")
		}
	}
	for _, n := range seqs {
		delete(in.schedule, n)
	}
	return nil
}

func (in *Inbox) accept(p *Payload, now time.Time) int64 {
	duplicate := in.history != nil && p.HasMessageID &&
		in.history.seen(dedupKey(p, in.cfg.EnablePartitioning), now)
	if duplicate {
		in.dropped++
	} else {
		in.accepted++
	}
	if f := in.broker.observer.Load(); f != nil {
		(*f)(Accepted{
			Entity: in.path, MessageID: p.MessageID, SessionID: p.SessionID, EnqueuedAt: now,
			Body: p.Body, Duplicate: duplicate,
		})
	}
	if duplicate {
		return 0
	}
	if p.ScheduledAt.After(now) {
		in.lastSeq++
		s := &scheduled{payload: p, seq: in.lastSeq, at: now}
		in.schedule[s.seq] = s
		in.deadlines.add(deadline{at: p.ScheduledAt, schedule: s})
		return s.seq
	}
	return in.fanOut(p, now)
}

// fanOut stores the message in every entity behind this one. It gets a new sequence number
// even if it had one while it was scheduled.
func (in *Inbox) fanOut(p *Payload, now time.Time) int64 {
	in.lastSeq++
	seq := in.lastSeq
	if p.carried != nil {
		seq = p.carried.seq
	}
	var view filter.Message
	for _, e := range in.outs {
		e.mu.Lock()
		e.advance(now)
		switch {
		case e.rules != nil:
			if view == nil {
				view = in.broker.view(p)
			}
			e.applyRules(p, view, seq, now)
		case !in.isTopic:
			e.lastSeq = in.lastSeq - 1 // scheduled messages of a queue have numbers too
			var first int64
			if p.carried != nil {
				first = seq
			}
			e.enqueue(p, first, nil, now)
		default:
			e.enqueue(p, seq, nil, now)
		}
		in.after = append(in.after, e.release()...)
	}
	return in.lastSeq
}

// scheduledFrom returns scheduled messages as a browser sees them.
func (in *Inbox) scheduledFrom(from int64, session *string) []*message {
	in.lock()
	defer in.unlock()
	var out []*message
	for _, s := range in.schedule {
		if s.seq >= from && (session == nil || s.payload.HasSessionID && s.payload.SessionID == *session) {
			out = append(out, &message{
				Payload: s.payload, seq: s.seq, enqueuedAt: s.at,
				ttl: s.payload.TimeToLive, state: Scheduled,
			})
		}
	}
	return out
}

// check applies the rules that refuse a whole send.
func (in *Inbox) check(batch []*Payload) error {
	for i, p := range batch {
		if tooLong(p.MessageID) || tooLong(p.SessionID) || tooLong(p.PartitionKey) {
			return refuse(ArgumentOutOfRange, "MessageId, SessionId and PartitionKey must not be longer than 128 characters.")
		}
		if p.HasSessionID && p.HasPartitionKey && p.SessionID != p.PartitionKey {
			return refuse(NotAllowed, descSessionPartitionKey)
		}
		if in.sessions && !p.HasSessionID {
			return refuse(NotAllowed, descSessionNull)
		}
		if in.cfg.EnablePartitioning && i > 0 && in.partition(p) != in.partition(batch[0]) {
			return refuse(NotAllowed, descPartitionedBatch)
		}
	}
	return nil
}

// partition returns the value that decides the partition: the session id, else the partition key,
// else the message id where duplicates are detected.
func (in *Inbox) partition(p *Payload) string {
	if p.HasSessionID || p.HasPartitionKey || in.cfg.RequiresDuplicateDetection {
		return partitionKey(p)
	}
	return ""
}

func partitionKey(p *Payload) string {
	switch {
	case p.HasSessionID:
		return "s" + p.SessionID
	case p.HasPartitionKey:
		return "s" + p.PartitionKey
	}
	return "m" + p.MessageID
}

// tooLong reports whether an id has more UTF-16 units than the service takes.
func tooLong(s string) bool {
	if len(s) <= entity.MaxIDLength {
		return false
	}
	n := 0
	for _, r := range s {
		n += utf16.RuneLen(r)
	}
	return n > entity.MaxIDLength
}
