package sockets_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// appliedAnswer is the answer of /applied.
type appliedAnswer struct {
	code                    int
	Projection, Aggregate   string
	Version                 int64
	Position, Parked, Error string
}

func (s *realStack) applied(addr, query string) appliedAnswer {
	s.Helper()
	code, body, err := s.get(addr, "/applied?"+query)
	require.NoError(s, err)
	answer := appliedAnswer{code: code}
	require.NoError(s, json.Unmarshal(body, &answer), string(body))
	return answer
}

// A query that waits for the version of a command sees its effect, through the program's port and
// in a Go program; if the version does not arrive, the error names the possible causes.
func TestAQueryWaitsForTheVersionOfItsCommand(t *testing.T) {
	for name, collection := range world.Counting {
		t.Run(name, func(t *testing.T) {
			s := newRealStack(t, false)
			producing, projecting := s.configured()
			log, logger := recorded()
			o := projector.Options{Logger: logger, Projections: projection.Builtin()}
			require.NoError(t, o.Projections.Register(world.Ledger{}))
			projecting.Projection = name
			s.run(producing, producer.Options{}, projecting, o)
			s.leads("a")
			addr := s.serving(log)
			s.until("its collections are there", func() bool {
				names, err := s.model.ListCollectionNames(t.Context(), bson.D{})
				return err == nil && len(names) > 0
			})
			events := func() int64 {
				raw, err := s.model.Collection(collection).FindOne(t.Context(), bson.D{{Key: "_id", Value: "one"}}).Raw()
				require.NoError(t, err)
				n, _ := raw.Lookup("events").AsInt64OK()
				return n
			}
			for version := range int64(20) {
				s.insert(1)
				if version%2 == 0 {
					answer := s.applied(addr, fmt.Sprintf("aggregate=one&version=%d&wait=10s", version+1))
					require.Equal(t, http.StatusOK, answer.code, "version %d: %+v; broker: %+v", version+1, answer, s.stack.ServiceBus.Stats(s.stack.Route.Out()))
					require.GreaterOrEqual(t, answer.Version, version+1)
					require.Equal(t, name, answer.Projection)
				} else {
					waiting, end := context.WithTimeout(t.Context(), 10*time.Second)
					effect, err := projection.Wait(waiting, s.model, projection.Awaited{
						Projection: name, Collection: collection, Aggregate: "one", Version: version + 1,
					})
					end()
					require.NoError(t, err, "broker: %+v", s.stack.ServiceBus.Stats(s.stack.Route.Out()))
					require.Equal(t, collection, effect.Collection)
				}
				require.Equal(t, version+1, events(), "the query sees what was written")
			}
			late := s.applied(addr, "aggregate=one&version=21&wait=50ms")
			require.Equal(t, http.StatusGatewayTimeout, late.code)
			require.EqualValues(t, 20, late.Version)
			require.Contains(t, late.Error, "it is applied up to version 20")
			require.Contains(t, late.Error, "not within 50ms")
			known := s.applied(addr, "aggregate=one&wait=30s&position="+url.QueryEscape(late.Position))
			require.Equal(t, http.StatusOK, known.code)
			for _, query := range []string{"", "aggregate=one", "aggregate=one&version=x", "version=1", "aggregate=one&version=1&wait=2h", "aggregate=one&version=0"} {
				wrong := s.applied(addr, query)
				require.Equal(t, http.StatusBadRequest, wrong.code, query)
				require.NotEmpty(t, wrong.Error)
			}
			if name == "ledger" {
				_, err := s.events.InsertOne(t.Context(), bson.D{{Key: "aggregateId", Value: "sick"}, {Key: "version", Value: 1}, {Key: "poison", Value: true}})
				require.NoError(t, err)
				parked := s.applied(addr, "aggregate=sick&version=2&wait=30s")
				require.Equal(t, http.StatusConflict, parked.code, "at once, not after the wait")
				require.Equal(t, "ProjectionFailed", parked.Parked)
				require.Contains(t, parked.Error, "poison")
			}
		})
	}
}
