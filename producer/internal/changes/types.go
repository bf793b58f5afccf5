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

// Types notices values whose types make them mean something else than they look like: a version that is no number, by which nobody can
// see a gap; and ids of two types that read alike, such as 17 and "17", which are one aggregate. It counts each and tells of the first.
// It outlives the terms of a process, and is safe for concurrent use. nil notices nothing.
type Types struct {
	metrics *Metrics
	log     *slog.Logger

	mu   sync.Mutex // guards everything below
	ids  ids
	told map[string]bool // the kinds of ids that have been told of
	gaps bool            // a version that is no number has been told of
}

// NewTypes notices, and tells it to these.
func NewTypes(metrics *Metrics, log *slog.Logger) *Types {
	return &Types{metrics: metrics, log: log, told: make(map[string]bool)}
}

// mendVersions says what to do about a version that is no whole number.
func mendVersions(path string) string {
	return fmt.Sprintf("store whole numbers at VERSION_PATH (%s), or name another path, or none (VERSION_PATH=) where there are no versions", path)
}

// mendIDs says what to do about ids that read alike.
func mendIDs(path string) string {
	return fmt.Sprintf("store one type at AGGREGATE_ID_PATH (%s); where the two are different aggregates, give one of them another id", path)
}

// version looks at what stands at the version's path of a change; zero: nothing does.
func (t *Types) version(v bson.RawValue, c envelope.Change, path string) {
	if t == nil || numbered(v) {
		return
	}
	t.metrics.unreadVersion()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gaps {
		return
	}
	t.gaps = true
	t.log.Warn("the version of an event is no whole number, so that nobody notices when an event before it is missing; said once",
		telemetry.KeyAggregate, c.Aggregate, telemetry.KeyPosition, c.Position, telemetry.KeyReason, shown(v),
		telemetry.KeyToDo, mendVersions(path))
}

// id looks at the id of a change's aggregate.
func (t *Types) id(v bson.RawValue, c envelope.Change, path string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	kind, other := t.ids.alike(v)
	if other == "" {
		return
	}
	t.metrics.alikeAggregate()
	if t.told[kind] {
		return
	}
	t.told[kind] = true
	t.log.Warn("aggregate ids of two types read alike: those with the same text are one aggregate; said once",
		telemetry.KeyAggregate, c.Aggregate, telemetry.KeyPosition, c.Position,
		telemetry.KeyReason, fmt.Sprintf("%s here, %s before", shown(v), other), telemetry.KeyToDo, mendIDs(path))
}

// numbered says that a version can be read, or that there is none.
func numbered(v bson.RawValue) bool {
	if v.Type == 0 || v.Type == bson.TypeNull || v.Type == bson.TypeUndefined {
		return true
	}
	_, ok := envelope.Number(v)
	return ok
}

// shown is a value for people, with its type.
func shown(v bson.RawValue) string {
	const most = 80
	return fmt.Sprintf("%.*s (%s)", most, v.String(), v.Type)
}

// ids knows of which kinds the ids were that came so far: as values of a type, and as strings that read like one. The zero value
// knows none.
type ids struct{ values, texts map[string]string } // by kind, an example of each

// The kinds of ids: what different types may be written as.
const (
	kindNumber   = "number"
	kindObjectID = "objectId"
	kindUUID     = "uuid"
	kindDate     = "date"
	kindExtended = "extended JSON"
)

// alike takes an id, and gives its kind with an example of the other type that reads like it; empty where there was none yet.
func (i *ids) alike(v bson.RawValue) (kind, other string) {
	if i.values == nil {
		i.values, i.texts = make(map[string]string), make(map[string]string)
	}
	mine, others := i.values, i.texts
	if s, ok := v.StringValueOK(); ok {
		kind, mine, others = reads(s), i.texts, i.values
	} else {
		kind = kindOf(v)
	}
	if kind == "" {
		return "", ""
	}
	if _, known := mine[kind]; !known {
		mine[kind] = shown(v)
	}
	return kind, others[kind]
}

// kindOf is the kind of an id that is no string.
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

// reads is the kind of id that envelope.Text writes like this string; empty: none.
func reads(s string) string {
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
