package commandline_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/commandline"
)

func TestUsageNamesTheProgramAsItWasCalled(t *testing.T) {
	t.Parallel()
	for executable, typed := range map[string]string{
		"projector":                               "projector",
		"/projector":                              "projector",
		"./customer-totals":                       "customer-totals",
		"customer-totals.exe":                     "customer-totals",
		"/tmp/go-build3718/b001/exe/totals":       "go run .",
		"/tmp/go-build3718/b001/totals.test":      "totals.test",
		"/home/ann/go-builders/bin/exe-projector": "exe-projector",
	} {
		require.Equal(t, typed, commandline.Invocation(executable), executable)
	}
}

func TestNumbersAgreeWithWhatTheyCount(t *testing.T) {
	t.Parallel()
	require.Equal(t, "0 events", commandline.Count(0, "event"))
	require.Equal(t, "1 event", commandline.Count(1, "event"))
	require.Equal(t, "2 dead letters", commandline.Count(int64(2), "dead letter"))
}
