package changes

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

func valueOf(t *testing.T, v any) bson.RawValue {
	t.Helper()
	return raw(t, bson.D{{Key: "v", Value: v}}).Lookup("v")
}

func decimal(t *testing.T, s string) bson.Decimal128 {
	t.Helper()
	d, err := bson.ParseDecimal128(s)
	require.NoError(t, err)
	return d
}

// Two ids conflict exactly if envelope.Text renders them as one text and they are not the same
// number.
func TestIDsOfTwoTypesWithTheSameText(t *testing.T) {
	object := bson.NewObjectID()
	when := time.Date(2026, 1, 31, 12, 0, 0, 5e6, time.UTC)
	for name, c := range map[string]struct {
		value, same any
		alike       bool
	}{
		"a number and its digits":       {int32(17), "17", true},
		"a negative one":                {int64(-4), "-4", true},
		"a whole double":                {17.0, "17", true},
		"an ObjectID and its digits":    {object, object.Hex(), true},
		"a UUID and its text":           {bson.Binary{Subtype: 4, Data: []byte("0123456789abcdef")}, "30313233-3435-3637-3839-616263646566", true},
		"a date and its text":           {bson.NewDateTimeFromTime(when), when.Format(time.RFC3339Nano), true},
		"a document and its JSON":       {bson.D{{Key: "a", Value: int32(1)}}, `{"a": {"$numberInt":"1"}}`, true},
		"a truth and its name":          {true, "true", true},
		"a decimal and its JSON":        {decimal(t, "0.10"), `{"$numberDecimal":"0.1"}`, true},
		"two types of the same number":  {int32(17), int64(17), false},
		"a number and other digits":     {int32(17), "017", false},
		"an ObjectID and a word":        {object, "order-17", false},
		"a date and a date without one": {bson.NewDateTimeFromTime(when), "2026-01-31", false},
	} {
		t.Run(name, func(t *testing.T) {
			one, other := valueOf(t, c.value), valueOf(t, c.same)
			var seen idKinds
			_, before := seen.conflictingType(one)
			require.Empty(t, before)
			_, before = seen.conflictingType(one)
			require.Empty(t, before, "a second one of the same type")
			_, before = seen.conflictingType(other)
			require.Equal(t, c.alike, before != "")
			var reversed idKinds
			reversed.conflictingType(other)
			_, before = reversed.conflictingType(one)
			require.Equal(t, c.alike, before != "")
			if c.alike {
				a, _ := envelope.Text(one)
				b, _ := envelope.Text(other)
				require.Equal(t, a, b, "they are one aggregate")
			}
		})
	}
}

func TestAVersionIsAnIntegerOrAbsent(t *testing.T) {
	for _, c := range []struct {
		value  any
		number int64
		reads  bool
	}{
		{int32(7), 7, true},
		{int64(1 << 60), 1 << 60, true},
		{7.0, 7, true},
		{nil, 0, true},
		{7.5, 0, false},
		{1e300, 0, false},
		{"7", 0, false},
		{decimal(t, "7"), 0, false},
		{true, 0, false},
	} {
		v := valueOf(t, c.value)
		n, _ := envelope.Number(v)
		require.Equal(t, c.number, n, "%v", c.value)
		require.Equal(t, c.reads, isNumberOrAbsent(v), "%v", c.value)
	}
	require.True(t, isNumberOrAbsent(bson.RawValue{}), "an event may have none")
}

// The server refuses a projection in which one path is inside another.
func TestASampleProjectsPathsThatDoNotCollide(t *testing.T) {
	for _, c := range []struct {
		aggregate, version string
		want               []string
	}{
		{"aggregateId", "version", []string{"_id", "aggregateId", "version"}},
		{"_id", "version", []string{"_id", "version"}},
		{"_id.shop", "_id.n", []string{"_id"}},
		{"meta", "meta.version", []string{"_id", "meta"}},
		{"meta.id.a", "meta.id", []string{"_id", "meta.id"}},
		{"n", "n", []string{"_id", "n"}},
		{"id", "", []string{"_id", "id"}},
	} {
		var got []string
		for _, field := range (Mapping{AggregatePath: c.aggregate, VersionPath: c.version}).sampledFields() {
			got = append(got, field.Key)
		}
		require.Equal(t, c.want, got)
	}
}

func TestMisleadingValuesAreCountedAndLoggedOnce(t *testing.T) {
	var log strings.Builder
	m := NewMetrics(prometheus.NewRegistry())
	mapping := mapping()
	mapping.Types = NewTypeWatcher(m, slog.New(slog.NewTextHandler(&log, nil)))
	for range 3 {
		for _, id := range []any{"17", 17} {
			mapped(t, mapping, eventOf("insert", after(bson.D{{Key: "order", Value: bson.D{{Key: "id", Value: id}}}, {Key: "version", Value: "1"}})))
		}
	}
	require.InDelta(t, 6, testutil.ToFloat64(m.unread), 0)
	require.InDelta(t, 5, testutil.ToFloat64(m.conflicting), 0, "all but the first, of which nothing was known")
	require.Equal(t, 2, strings.Count(log.String(), "logged once"))
}
