package changes

import (
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// TypeWatcher detects values whose BSON type is misleading: a version that is not an integer, so
// that gaps go unnoticed; and aggregate ids of different types with the same text, such as 17 and
// "17", which are one aggregate. It counts each and logs the first. It outlives the terms of a
// process, and is safe for concurrent use. A nil TypeWatcher detects nothing.
type TypeWatcher struct {
	metrics *Metrics
	log     *slog.Logger

	mu              sync.Mutex // guards everything below
	ids             idKinds
	reportedKinds   map[string]bool // kinds of ids that were logged
	versionReported bool            // a version that is not an integer was logged
}

// NewTypeWatcher returns a TypeWatcher that reports to metrics and log.
func NewTypeWatcher(metrics *Metrics, log *slog.Logger) *TypeWatcher {
	return &TypeWatcher{metrics: metrics, log: log, reportedKinds: make(map[string]bool)}
}

// versionRemedy returns what to do about a version that is not an integer.
func versionRemedy(path string) string {
	return fmt.Sprintf("store integers at VERSION_PATH (%s), or set another path, or none (VERSION_PATH=) if there are no versions", path)
}

// aggregateRemedy returns what to do about ids with the same text.
func aggregateRemedy(path string) string {
	return fmt.Sprintf("store one type at AGGREGATE_ID_PATH (%s); if the two are different aggregates, give one of them another id", path)
}

// Version checks the value at the version path of a change; a zero value means that it is absent.
func (t *TypeWatcher) Version(v bson.RawValue, c envelope.Change, path string) {
	if t == nil || isNumberOrAbsent(v) {
		return
	}
	t.metrics.unread.Inc()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.versionReported {
		return
	}
	t.versionReported = true
	t.log.Warn("the version of an event is not an integer, so a missing event before it would go unnoticed; logged once",
		telemetry.KeyAggregate, c.Aggregate, telemetry.KeyPosition, c.Position, telemetry.KeyReason, format(v),
		telemetry.KeyToDo, versionRemedy(path))
}

// Aggregate checks the aggregate id of a change.
func (t *TypeWatcher) Aggregate(v bson.RawValue, c envelope.Change, path string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	kind, other := t.ids.conflictingType(v)
	if other == "" {
		return
	}
	t.metrics.conflicting.Inc()
	if t.reportedKinds[kind] {
		return
	}
	t.reportedKinds[kind] = true
	t.log.Warn("aggregate ids of two types may have the same text, and are then one aggregate; logged once",
		telemetry.KeyAggregate, c.Aggregate, telemetry.KeyPosition, c.Position,
		telemetry.KeyReason, fmt.Sprintf("%s here, %s before", format(v), other), telemetry.KeyToDo, aggregateRemedy(path))
}

// isNumberOrAbsent reports whether a version is an integer or absent.
func isNumberOrAbsent(v bson.RawValue) bool {
	if v.Type == 0 || v.Type == bson.TypeNull || v.Type == bson.TypeUndefined {
		return true
	}
	_, ok := envelope.Number(v)
	return ok
}

// format returns a value with its type, for log messages.
func format(v bson.RawValue) string {
	const most = 80
	return fmt.Sprintf("%.*s (%s)", most, v.String(), v.Type)
}

// idKinds records the kinds of the ids seen so far: as typed values, and as strings with the text
// of such a value. The zero value is empty.
type idKinds struct{ values, texts map[string]string } // an example of each kind

// The kinds of ids: types whose values may have the same text as a string.
const (
	kindNumber   = "number"
	kindObjectID = "objectId"
	kindUUID     = "uuid"
	kindDate     = "date"
	kindExtended = "extended JSON"
)

// conflictingType records an id and returns its kind, and an example of the other type with the
// same kind of text, or "" if there was none.
func (i *idKinds) conflictingType(v bson.RawValue) (kind, other string) {
	if i.values == nil {
		i.values, i.texts = make(map[string]string), make(map[string]string)
	}
	mine, others := i.values, i.texts
	if s, ok := v.StringValueOK(); ok {
		kind, mine, others = kindOfText(s), i.texts, i.values
	} else {
		kind = kindOf(v)
	}
	if kind == "" {
		return "", ""
	}
	if _, known := mine[kind]; !known {
		mine[kind] = format(v)
	}
	return kind, others[kind]
}

// kindOf returns the kind of an id that is not a string.
func kindOf(v bson.RawValue) string {
	switch v.Type {
	case 0, bson.TypeNull, bson.TypeUndefined:
		return ""
	case bson.TypeInt32, bson.TypeInt64:
		return kindNumber
	case bson.TypeObjectID:
		return kindObjectID
	case bson.TypeDateTime:
		return kindDate
	case bson.TypeDouble:
		if _, whole := envelope.Number(v); whole {
			return kindNumber
		}
	case bson.TypeBinary:
		if subtype, data, ok := v.BinaryOK(); ok && subtype == bson.TypeBinaryUUID && len(data) == 16 {
			return kindUUID
		}
	default: // everything else, and the values above that did not return
	}
	return kindExtended
}

// kindOfText returns the kind of id that envelope.Text renders as s, or "".
func kindOfText(s string) string {
	if s == "" {
		return ""
	}
	digit := s[0] >= '0' && s[0] <= '9'
	if digit || s[0] == '-' {
		if n, err := strconv.ParseInt(s, 10, 64); err == nil && strconv.FormatInt(n, 10) == s {
			return kindNumber
		}
	}
	switch len(s) {
	case len(bson.ObjectID{}.Hex()):
		if id, err := bson.ObjectIDFromHex(s); err == nil && id.Hex() == s {
			return kindObjectID
		}
	case len(uuid.UUID{}.String()):
		if id, err := uuid.Parse(s); err == nil && id.String() == s {
			return kindUUID
		}
	}
	if digit {
		if at, err := time.Parse(time.RFC3339Nano, s); err == nil && at.UTC().Format(time.RFC3339Nano) == s {
			return kindDate
		}
	}
	if s[0] == '{' || s[0] == '[' || s == "true" || s == "false" {
		return kindExtended
	}
	return ""
}
