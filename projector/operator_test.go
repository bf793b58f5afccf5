package projector_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/settings"
)

func TestCommandLine(t *testing.T) {
	problems := settings.Problems{errors.New("MONGODB_URI: is required and not set")}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"help"}, 0, "usage: projector"},
		{[]string{"stauts"}, 2, `there is no command "stauts"; did you mean status? ` + "`projector help` lists them"},
		{[]string{"parked"}, 2, "\"parked\" is not a whole command; choose one of these:\n  parked list [--wide] [--json]\n"},
		{[]string{"parked", "-h"}, 0, "usage: projector parked COMMAND\n\n  parked list [--wide] [--json]\n"},
		{[]string{"help", "parked"}, 0, "usage: projector parked COMMAND"},
		{[]string{"parked", "show"}, 2, "needs the aggregate; `projector parked list` shows"},
		{[]string{"parked", "replay"}, 2, "needs either an aggregate or --all"},
		{[]string{"parked", "replay", "a", "--all"}, 2, "needs either an aggregate or --all"},
		{[]string{"parked", "replay", "a", "b"}, 2, `does not take "b"`},
		{[]string{"parked", "replay", "a", "--wait", "-1s"}, 2, "--wait: must be at least 0s"},
		{[]string{"parked", "park", "--reason", "x"}, 2, "needs the aggregate"},
		{[]string{"parked", "park", "a"}, 2, "needs --reason"},
		{[]string{"parked", "park", "a", "--reason", "x"}, 2, "MONGODB_URI: is required"},
		{[]string{"parked", "drop", "--yes"}, 2, "needs the aggregate"},
		{[]string{"parked", "drop", "a"}, 2, "needs --yes: it gives up for good the event in the way, or the versions that are missing; check first: projector parked show -- a"},
		{[]string{"parked", "drop", "a", "--yes"}, 2, "MONGODB_URI: is required"},
		{[]string{"status"}, 2, "MONGODB_URI: is required"},
		{[]string{"doctor"}, 2, "MONGODB_URI: is required"},
		{[]string{"run"}, 2, "MONGODB_URI: is required"},
		{nil, 2, "MONGODB_URI: is required"},
	} {
		var out, errOut bytes.Buffer
		code := projector.Execute(t.Context(), c.args, func() (projector.Config, error) { return projector.Config{}, problems },
			projector.Options{}, &out, &errOut, nil)
		require.Equal(t, c.code, code, c.args)
		require.Contains(t, out.String()+errOut.String(), c.want)
	}
}
