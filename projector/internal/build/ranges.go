package build

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// Ranges say as of which position each aggregate of a stream was built.
type Ranges struct {
	stream string
	spans  []span
}

// ReadRanges returns the ranges of a build that has ended.
func ReadRanges(ctx context.Context, readModel *mongo.Database, p projection.Projection, s *State) (*Ranges, error) {
	var found struct {
		Spans []span `bson:"spans"`
	}
	err := records(readModel, p).FindOne(ctx, bson.D{{Key: "_id", Value: stateID}, {Key: "id", Value: s.ID}}).Decode(&found)
	if err != nil {
		return nil, fmt.Errorf("read the ranges of the build: %w", err)
	}
	return &Ranges{stream: s.Stream, spans: found.Spans}, nil
}

// Through returns the position up to which an aggregate of a stream was built, whether or not the
// source had anything of it; empty if the aggregate's stream was not.
func (r *Ranges) Through(stream, aggregate string) string {
	if stream != r.stream {
		return ""
	}
	i, _ := slices.BinarySearchFunc(r.spans, aggregate, func(s span, aggregate string) int {
		if s.To.Type == 0 || compare(aggregate, s.To) <= 0 {
			return 1 // it ends at the aggregate or behind it
		}
		return -1
	})
	if i == len(r.spans) {
		return ""
	}
	return boundary(r.spans[i].At)
}

func boundary(at bson.Timestamp) string { return envelope.Boundary(at, math.MaxUint32) }

// bracket returns what values of a kind have in common in MongoDB's order, as a person would call
// it; empty for a type that aggregates of a build cannot have.
func bracket(v bson.RawValue) string {
	switch v.Type {
	case bson.TypeString:
		return "string"
	case bson.TypeInt32, bson.TypeInt64, bson.TypeDouble, bson.TypeDecimal128:
		return "number"
	case bson.TypeObjectID:
		return "ObjectID"
	case bson.TypeDateTime:
		return "date"
	case bson.TypeBinary:
		if subtype, data := v.Binary(); subtype == bson.TypeBinaryUUID && len(data) == 16 {
			return "UUID"
		}
	default: // none that a build could put in order by its text
	}
	return ""
}

// compare orders an aggregate's id, as text, and a value of the same bracket as MongoDB orders the
// values.
func compare(aggregate string, v bson.RawValue) int {
	text, _ := envelope.Text(v)
	switch bracket(v) {
	case "number":
		return number(aggregate).Cmp(number(text))
	case "date":
		a, _ := time.Parse(time.RFC3339Nano, aggregate)
		b, _ := time.Parse(time.RFC3339Nano, text)
		return a.Compare(b)
	}
	return cmp.Compare(aggregate, text)
}

// number reads a number from the text of an id: digits, or Extended JSON such as {"$numberDouble":
// "0.5"}.
func number(text string) *big.Float {
	if _, inside, found := strings.Cut(text, ":"); found {
		text = strings.Trim(inside, ` "}`)
	}
	if strings.Contains(text, "E") {
		text = strings.TrimSuffix(text, ".0") // as the driver writes large doubles
	}
	f, _, err := big.ParseFloat(text, 10, 128, big.ToNearestEven)
	if err != nil {
		return new(big.Float) // NaN, which ids of a build do not have
	}
	return f
}
