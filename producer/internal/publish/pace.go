package publish

import "time"

// pace limits how many messages are sent a second to a broker that has refused some because it is
// busy, such as the Standard tier, which grants so many operations a second. A sender that only
// pauses after a refusal spends a second's grant at once and leaves the next ones unused. The pace
// begins at what the broker accepted in a second, is lowered by each refusal, and rises while
// nothing is refused. It never holds a batch up for more than paceSlowest: a broker that accepts
// nothing must be asked whether it does again.
//
// It is pure state, not safe for concurrent use. The zero value does not limit.
type pace struct {
	rate  float64   // messages a second; 0: unlimited
	begun time.Time // when the last batch began
	next  time.Time // when the next one may begin
	batch int       // messages of the last batch, which the next one is taken to have until it is filled

	since              time.Time // the beginning of the present second
	accepted, previous int       // messages in the present second and in the one before
	changedAt          time.Time // when the rate was last changed
	loweredAt          time.Time
}

const (
	// paceRise is the part by which the pace rises in a second without a refusal, and paceFall what
	// remains of it after one.
	paceRise, paceFall = 0.03, 0.85
	// paceQuiet is how long after a refusal the broker has more to grant than it had, and the pace
	// is doubled in a second.
	paceQuiet = 10 * time.Second
	// paceUnlimited is more than a broker accepts in a second. A pace that reaches it ends.
	paceUnlimited = 1e6
	// paceSlowest is the longest time between two batches.
	paceSlowest = time.Second
	// paceBurst is how long a sender that was held up elsewhere may be behind the pace and catch
	// up.
	paceBurst = 100 * time.Millisecond
)

// wait returns how long no batch may begin.
func (p *pace) wait(now time.Time) time.Duration {
	if p.rate == 0 {
		return 0
	}
	return p.next.Sub(now)
}

// begin records that a batch begins.
func (p *pace) begin(now time.Time) {
	if earliest := now.Add(-paceBurst); p.next.Before(earliest) {
		p.next = earliest
	}
	p.begun = now
	p.delay(p.batch)
}

// filled records how many messages the batch that has begun has.
func (p *pace) filled(messages int) {
	p.delay(messages - p.batch)
	p.batch = messages
}

func (p *pace) delay(messages int) {
	if p.rate == 0 {
		return
	}
	p.next = p.next.Add(time.Duration(float64(messages) / p.rate * float64(time.Second)))
	if latest := p.begun.Add(paceSlowest); p.next.After(latest) {
		p.next = latest
	}
}

// acknowledged records that the broker has accepted messages.
func (p *pace) acknowledged(now time.Time, messages int) {
	switch elapsed := now.Sub(p.since); {
	case elapsed >= 2*time.Second:
		p.since, p.previous, p.accepted = now, 0, 0
	case elapsed >= time.Second:
		p.since, p.previous, p.accepted = now, p.accepted, 0
	}
	p.accepted += messages
	rise := paceRise
	if now.Sub(p.loweredAt) > paceQuiet {
		rise = 1
	}
	p.rate *= 1 + min(rise*now.Sub(p.changedAt).Seconds(), 1)
	if p.rate > paceUnlimited {
		p.rate = 0
	}
	p.changedAt = now
}

// throttled records that the broker refused a batch because it is busy.
func (p *pace) throttled(now time.Time) {
	switch {
	case p.rate == 0:
		p.rate = float64(max(p.accepted, p.previous, 1))
	case now.Sub(p.loweredAt) < reductionInterval:
		return
	default:
		p.rate = max(p.rate*paceFall, float64(p.batch)/paceSlowest.Seconds())
	}
	p.changedAt, p.loweredAt = now, now
}
