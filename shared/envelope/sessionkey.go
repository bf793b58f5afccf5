package envelope

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// MaxBuckets is the largest number of sessions that aggregates can share.
const MaxBuckets = 65536

// SessionKey determines which session carries an aggregate. With the zero value, each aggregate has
// a session of its own. With bucket:N, all aggregates share N sessions. Accepting a session costs a
// round trip over AMQP and about fifteen through the SDK, which pays only if enough messages
// follow.
//
// Under one key, an aggregate's session never changes, so its order holds. Under two keys at once
// it does not hold: events of one aggregate would wait in two sessions. Publishers must use one key
// at a time.
type SessionKey struct{ buckets int }

const (
	keyAggregate = "aggregate"
	keyBucket    = "bucket:"
	// bucketSession begins the id of a shared session.
	bucketSession = "bucket-"
)

// Buckets returns the key bucket:N, with n from 1 to [MaxBuckets].
func Buckets(n int) SessionKey { return SessionKey{buckets: n} }

// Session returns the id of the session that carries an aggregate: see [SessionID], or "bucket-"
// and the first eight bytes of the id's SHA-256, big-endian, modulo N.
func (k SessionKey) Session(aggregate string) string {
	if k.buckets == 0 {
		return SessionID(aggregate)
	}
	sum := sha256.Sum256([]byte(aggregate))
	return bucketSession + strconv.FormatUint(binary.BigEndian.Uint64(sum[:8])%uint64(k.buckets), 10)
}

// String returns the key as it is configured: aggregate, or bucket:N.
func (k SessionKey) String() string {
	if k.buckets == 0 {
		return keyAggregate
	}
	return keyBucket + strconv.Itoa(k.buckets)
}

// MarshalText writes the form of [SessionKey.String].
func (k SessionKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads the form of [SessionKey.String].
func (k *SessionKey) UnmarshalText(text []byte) error {
	if string(text) == keyAggregate {
		*k = SessionKey{}
		return nil
	}
	number, ok := strings.CutPrefix(string(text), keyBucket)
	n, err := strconv.Atoi(number)
	if !ok || err != nil || n < 1 || n > MaxBuckets || strconv.Itoa(n) != number {
		return fmt.Errorf("read session key %q: it is %s, or %sN with N from 1 to %d", text, keyAggregate, keyBucket, MaxBuckets)
	}
	*k = Buckets(n)
	return nil
}
