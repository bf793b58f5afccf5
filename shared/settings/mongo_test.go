package settings_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/settings"
)

func TestCheckMongoURIQuotesNothingAndResolvesNothing(t *testing.T) {
	for _, uri := range []string{
		"mongodb://user:hunter2@db.example/?replicaSet=rs0", "mongodb+srv://user:hunter2@no-such-name.invalid/",
	} {
		require.NoError(t, settings.CheckMongoURI("MONGODB_URI", uri))
	}
	for _, uri := range []string{"hunter2", "https://hunter2", "mongodb://user:hunter2@db.example/?w=hunter2&ssl=hunter2"} {
		err := settings.CheckMongoURI("MONGODB_URI", uri)
		require.ErrorContains(t, err, "MONGODB_URI: is not")
		require.NotContains(t, err.Error(), "hunter2")
	}
	require.EqualError(t, settings.CheckMongoURI("MONGODB_URI", ""), "MONGODB_URI: is required and not set")
}
