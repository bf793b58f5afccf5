package run

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/flags"
	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/history"
)

func raw(t *testing.T, json string) bson.Raw {
	t.Helper()
	var d bson.Raw
	require.NoError(t, bson.UnmarshalExtJSON([]byte(json), false, &d))
	return d
}

func TestAMirroredEventIsSeenOnce(t *testing.T) {
	t.Parallel()
	r := &runner{options: flags.Options{Projection: flags.Mirror}, rec: history.NewRecorder()}
	r.rec.Commit(history.Commit{Aggregate: "a", Version: 1}, history.Commit{Aggregate: "a", Version: 2})
	for _, operation := range []string{"insert", "replace"} {
		r.observe(raw(t, `{"operationType":"`+operation+`","documentKey":{"_id":1},"fullDocument":{"_id":1,"aggregateId":"a"}}`), time.Now())
	}
	r.observe(raw(t, `{"operationType":"delete","documentKey":{"_id":1}}`), time.Now())
	require.EqualValues(t, 1, r.rec.Counts().Visible)
}

func TestWhatTheBrokerTakesIsRecordedOfOurTopicAlone(t *testing.T) {
	t.Parallel()
	r := &runner{rec: history.NewRecorder(), places: places{route: emulator.Route{Topic: "changes", Subscription: "projector"}}}
	properties := map[string]any{"cloudEvents_subject": "a", "position": "8201", "epoch": int64(7), "version": int32(3)}
	r.accepted(servicebus.Accepted{Entity: "changes", MessageID: "m", SessionID: "bucket-1", Properties: properties, Duplicate: true})
	r.accepted(servicebus.Accepted{Entity: "other", MessageID: "n", SessionID: "bucket-1", Properties: properties})
	accepted := r.rec.History().Accepted
	require.Len(t, accepted, 1)
	accepted[0].At = time.Time{}
	require.Equal(t, history.Acceptance{
		MessageID: "m", Aggregate: "a", Session: "bucket-1", Position: "8201", Epoch: 7, Version: 3, Duplicate: true,
	}, accepted[0])
}
