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

func TestTheReadModelsChangesAreReadInEveryForm(t *testing.T) {
	t.Parallel()
	at := time.Unix(1, 0)
	for name, test := range map[string]struct {
		change string
		want   []history.Observation
	}{
		"insert": {
			`{"operationType":"insert","documentKey":{"_id":"a"},"fullDocument":{"_id":"a","events":{"$numberLong":"3"},"_sluice":{"position":"8201"}}}`,
			[]history.Observation{{Aggregate: "a", Events: 3, Position: "8201", At: at}},
		},
		"update of single fields": {
			`{"operationType":"update","documentKey":{"_id":"a"},"updateDescription":{"updatedFields":{"events":4,"_sluice.position":"8202"}}}`,
			[]history.Observation{{Aggregate: "a", Events: 4, Position: "8202", At: at}},
		},
		"update of the whole guard": {
			`{"operationType":"update","documentKey":{"_id":"a"},"updateDescription":{"updatedFields":{"events":4,"_sluice":{"position":"8202"}}}}`,
			[]history.Observation{{Aggregate: "a", Events: 4, Position: "8202", At: at}},
		},
		"update of the position alone": {
			`{"operationType":"update","documentKey":{"_id":"a"},"updateDescription":{"updatedFields":{"_sluice.position":"8202"}}}`,
			[]history.Observation{{Aggregate: "a", Events: -1, Position: "8202", At: at}},
		},
		"delete": {
			`{"operationType":"delete","documentKey":{"_id":"a"}}`,
			[]history.Observation{{Aggregate: "a", Events: 0, At: at}},
		},
		"not of a document": {`{"operationType":"drop"}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &runner{options: flags.Options{Projection: flags.Timeline}, rec: history.NewRecorder()}
			r.observe(raw(t, test.change), at)
			require.Equal(t, test.want, r.rec.History().Observed)
		})
	}
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
