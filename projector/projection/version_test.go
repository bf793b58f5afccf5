package projection_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

func TestAVersionWritesUnderItsOwnNames(t *testing.T) {
	body, err := bson.Marshal(bson.D{{Key: "documentKey", Value: bson.D{{Key: "_id", Value: "a"}}}, {Key: "fullDocument", Value: bson.D{{Key: "_id", Value: "a"}, {Key: "type", Value: "OrderPlaced"}, {Key: "occurredAt", Value: "2026-01-02T03:04:05Z"}, {Key: "data", Value: bson.D{{Key: "customerId", Value: "c"}, {Key: "totalCents", Value: int64(1)}}}}}})
	require.NoError(t, err)
	event := projection.Event{Change: envelope.Change{Aggregate: "a", Operation: envelope.Insert, Body: body}}
	for _, p := range []projection.Projection{projection.Timeline{}, projection.Mirror{}, projection.Orders{}} {
		second, err := projection.Version(p, 2)
		require.NoError(t, err)
		require.Equal(t, p.Name()+"_v2", second.Name())
		require.Equal(t, 2, projection.VersionOf(second))
		require.Equal(t, 1, projection.VersionOf(p))
		_, one := p.(projection.OneDocument)
		_, still := second.(projection.OneDocument)
		require.Equal(t, one, still)
		before, _ := projection.Collections(p)
		after, _ := projection.Collections(second)
		require.Len(t, after, len(before))
		for i := range after {
			require.Equal(t, before[i].Name+"_v2", after[i].Name)
			require.Equal(t, before[i].KeyedBy, after[i].KeyedBy)
		}
		plain, err := p.Project(event)
		require.NoError(t, err)
		writes, err := second.Project(event)
		require.NoError(t, err)
		require.Len(t, writes, len(plain))
		for i := range writes {
			collection, id := plain[i].Target()
			renamed, sameID := writes[i].Target()
			require.Equal(t, collection+"_v2", renamed)
			require.Equal(t, id, sameID)
		}
		same, err := projection.Version(p, 1)
		require.NoError(t, err)
		require.Equal(t, p, same)
	}
}

// needing computes with post-images, and declares nothing else.
type needing struct{ undeclared }

func (needing) NeedsPostImages() bool { return true }

func (needing) Collections() []projection.Collection { return []projection.Collection{{Name: "c"}} }

type undeclared struct{}

func (undeclared) Name() string                                         { return "p" }
func (undeclared) Project(projection.Event) ([]projection.Write, error) { return nil, nil }

func TestAVersionKeepsWhatItsProjectionNeeds(t *testing.T) {
	second, err := projection.Version(needing{}, 2)
	require.NoError(t, err)
	require.True(t, second.(projection.PostImages).NeedsPostImages())
	_, err = projection.Version(undeclared{}, 2)
	require.ErrorContains(t, err, "implement projection.Stored")
}

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]int{"orders": 1, "orders:1": 1, "orders:12": 12} {
		name, v, err := projection.ParseVersion(text)
		require.NoError(t, err, text)
		require.Equal(t, "orders", name)
		require.Equal(t, want, v)
	}
	for _, text := range []string{"orders:", "orders:0", "orders:-1", "orders:02", "orders:2:3", "orders:two"} {
		_, _, err := projection.ParseVersion(text)
		require.Error(t, err, text)
	}
}

func TestNoProjectionHasTheNameOfAVersion(t *testing.T) {
	for _, name := range []string{"orders_v2", "orders:2"} {
		_, err := projection.NewRegistry(named{name: name})
		require.ErrorContains(t, err, "is that of a projection's version")
	}
}
