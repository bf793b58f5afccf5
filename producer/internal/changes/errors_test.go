package changes

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// G6: the code alone decides whether history is lost, a setting is wrong, or waiting helps.
func TestG6TheErrorTable(t *testing.T) {
	var (
		resumed   = openState{resuming: true}
		reopening = openState{opening: true, resuming: true}
		beginning = openState{opening: true}
		open      = openState{}
	)
	for _, c := range []struct {
		what string
		code int32
		at   openState
		want remedy
	}{
		{"MongoDB: the oplog is gone", 286, reopening, historyLost},
		{"MongoDB: the oplog is gone while reading", 286, resumed, historyLost},
		{"MongoDB: the token is not found", 280, reopening, historyLost},
		{"MongoDB: not a token of this stream", 260, reopening, historyLost},
		{"Amazon DocumentDB: the log is gone", 136, reopening, historyLost},
		{"Amazon DocumentDB: invalid resume token", 9, reopening, historyLost},
		{"Azure Cosmos DB: expired resume token", 72, resumed, historyLost},
		{"Azure Cosmos DB: options refused before there is a token", 72, beginning, fatal},
		{"a pipeline that cannot be parsed", 9, beginning, fatal},
		{"Azure Cosmos DB: too many requests", 16500, reopening, reopen},
		{"Azure Cosmos DB: the collection is not there", 26, reopening, reopen},
		{"no rights", 13, reopening, fatal},
		{"an image is required and not kept", 47, open, fatal},
		{"an event that is too large", 10334, open, fatal},
		{"a stage that the deployment does not know", 40324, beginning, fatal},
		{"a standalone server", 40573, beginning, fatal},
		{"an expression that the server refuses", 31249, beginning, fatal},
		{"an assertion while reading", 31249, open, reopen},
		{"MongoDB Atlas: no rights", 8000, beginning, fatal},
		{"MongoDB: an option that the command does not know", 40415, beginning, fatal},
		{"MongoDB: a view", 166, beginning, fatal},
		{"MongoDB: not supported", 115, beginning, fatal},
		{"Amazon DocumentDB: not supported", 303, beginning, fatal},
		{"Amazon DocumentDB: a stage that is not supported", 304, beginning, fatal},
		{"MongoDB: the opening was interrupted", 11601, beginning, reopen},
		{"MongoDB: the opening was interrupted by a shutdown", 11600, beginning, reopen},
		{"an election", 10107, reopening, reopen},
		{"a killed cursor", 43, open, reopen},
		{"an unknown code", 4711, reopening, reopen},
	} {
		t.Run(c.what, func(t *testing.T) {
			err := fmt.Errorf("wrapped: %w", mongo.CommandError{Code: c.code})
			require.Equal(t, c.want, classify(err, c.at))
		})
	}
	require.Equal(t, reopen, classify(errors.New("the network"), reopening))
	require.Equal(t, historyLost, classify(fmt.Errorf("wrapped: %w", errHistoryGone), open), "whatever the server answers")
	labelled := mongo.CommandError{Code: 9, Labels: []string{"ResumableChangeStreamError"}}
	require.Equal(t, reopen, classify(labelled, resumed), "the server's own word")
}

func TestAFatalErrorHasARemedy(t *testing.T) {
	require.EqualError(t, explain(mongo.CommandError{Code: 40573, Message: "no", Name: "Location40573"}, ""),
		"read change stream from its beginning: (Location40573) no: change streams need a replica set; start the server with --replSet")
	require.ErrorContains(t, explain(mongo.CommandError{Code: 31249, Message: "Path collision"}, "82AA"), "after 82AA: ")
}
