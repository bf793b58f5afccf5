package world

import (
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// FailMongo makes MongoDB answer the next n of these commands with an error code.
func (w *World) FailMongo(n, code int, commands ...string) {
	w.Helper()
	w.failPoint(n, commands, bson.E{Key: "errorCode", Value: code})
}

// DelayMongo makes MongoDB wait before it executes the next n of these commands.
func (w *World) DelayMongo(n int, d time.Duration, commands ...string) {
	w.Helper()
	w.failPoint(n, commands, bson.E{Key: "blockConnection", Value: true}, bson.E{Key: "blockTimeMS", Value: d.Milliseconds()})
}

// LateMajority makes MongoDB execute the next n of these commands and answer that the write concern
// timed out.
func (w *World) LateMajority(n int, commands ...string) {
	w.Helper()
	w.failPoint(n, commands, bson.E{Key: "writeConcernError", Value: bson.D{
		{Key: "code", Value: 50}, {Key: "errmsg", Value: "operation exceeded time limit"},
	}})
}

func (w *World) failPoint(n int, commands []string, data ...bson.E) {
	w.Helper()
	require.NoError(w, w.Client.Database("admin").RunCommand(w.Context(), bson.D{
		{Key: "configureFailPoint", Value: "failCommand"},
		{Key: "mode", Value: bson.D{{Key: "times", Value: n}}},
		{Key: "data", Value: append(bson.D{{Key: "failCommands", Value: commands}}, data...)},
	}).Err())
}
