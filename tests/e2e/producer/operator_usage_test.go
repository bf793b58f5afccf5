package producer_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/settings"
)

func TestOperatorCommandLine(t *testing.T) {
	noConfig := settings.Problems{errors.New("MONGODB_URI: is required")}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"help"}, 0, "usage: producer"},
		{[]string{"-h"}, 0, "usage: producer"},
		{[]string{"status", "-h"}, 0, "usage: producer"},
		{[]string{"stauts"}, 2, `there is no command "stauts"`},
		{[]string{"token"}, 2, "\"token\" is not a whole command; choose one of these:\n  token show"},
		{[]string{"lease"}, 2, "\"lease\" is not a whole command"},
		{[]string{"token", "drop"}, 2, `there is no command "token drop"; choose one of these:`},
		{[]string{"token", "set"}, 2, "needs the token"},
		{[]string{"token", "set", "82", "83"}, 2, `does not take "83"`},
		{[]string{"token", "rewind"}, 2, "needs --to with a time"},
		{[]string{"token", "rewind", "--to", "yesterday"}, 2, `it is "yesterday"`},
		{[]string{"token", "restore"}, 2, "needs --container with the name"},
		{[]string{"token", "restore", "shop.events.json.2026-01-01T00-00-00Z", "--to", "2026-01-01T00:00:00Z"}, 2, "needs --container with the name"},
		{[]string{"token", "restore", "--container", "copies", "--to", "yesterday"}, 2, `it is "yesterday"`},
		{[]string{"token", "restore", "--container", "copies", "--to", "2026-01-01T00:00:00Z", "--applied"}, 2, "exclude each other"},
		{[]string{"session-key"}, 2, "aggregate, or bucket:N"},
		{[]string{"session-key", "buckets"}, 2, "aggregate, or bucket:N"},
		{[]string{"session-key", "bucket:0"}, 2, "aggregate, or bucket:N"},
		{[]string{"session-key", "bucket:1", "2"}, 2, `does not take "2"`},
		{[]string{"status", "--loud"}, 2, "not defined: -loud"},
		{[]string{"status"}, 2, "MONGODB_URI: is required"},
		{nil, 2, "MONGODB_URI: is required"},
	} {
		var out, errOut bytes.Buffer
		code := producer.Execute(t.Context(), c.args, func() ([]producer.Config, error) { return nil, noConfig },
			producer.Options{}, &out, &errOut, nil)
		require.Equal(t, c.code, code, c.args)
		require.Contains(t, out.String()+errOut.String(), c.want)
	}
	for _, args := range [][]string{nil, {"run"}} {
		for code, result := range map[int]error{0: nil, 1: errors.New("no"), 2: settings.Problems{errors.New("PIPELINE: no")}} {
			var out, errOut bytes.Buffer
			ran := producer.Execute(t.Context(), args, func() ([]producer.Config, error) { return []producer.Config{{}}, nil },
				producer.Options{}, &out, &errOut, func(context.Context, []producer.Config) error { return result })
			require.Equal(t, code, ran)
			require.Equal(t, code == 2, errOut.Len() > 0, "a running producer logs its own errors")
		}
	}
}
