package chaos

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text string
		want Plan
	}{
		"nothing":   {"", nil},
		"blanks":    {"  ", nil},
		"fractions": {"term-leader@1500ms", Plan{{TermLeader, 1500 * time.Millisecond, 0}}},
		"duration":  {"stop-leader@5s:7s", Plan{{StopLeader, 5 * time.Second, 7 * time.Second}}},
		"by time": {
			"drop-servicebus@4s, kill-projector@3s",
			Plan{{KillProjector, 3 * time.Second, 0}, {DropServiceBus, 4 * time.Second, 0}},
		},
		"same time keeps the order": {
			"kill-projector@3s,kill-leader@3s,kill-projector@3s",
			Plan{{KillProjector, 3 * time.Second, 0}, {KillLeader, 3 * time.Second, 0}, {KillProjector, 3 * time.Second, 0}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Parse(test.text)
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
}

func TestParseReportsWhatIsWrongAndTheRightForm(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ text, want string }{
		"unknown name":      {"kill-bystander@1s", `no chaos named "kill-bystander"`},
		"no time":           {"kill-leader", "does not say when"},
		"empty time":        {"kill-leader@", "does not say when"},
		"no unit":           {"kill-leader@5", `"5" is no time`},
		"negative time":     {"kill-leader@-5s", `"-5s" is no time`},
		"unwanted duration": {"kill-leader@5s:2s", "takes no duration"},
		"empty duration":    {"stop-leader@5s:", `"" is no duration`},
		"zero duration":     {"stop-leader@5s:0s", `"0s" is no duration`},
		"trailing comma":    {"kill-leader@5s,", "nothing between two commas"},
		"second is wrong":   {"kill-leader@5s,term@6s", `no chaos named "term"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse(test.text)
			require.ErrorContains(t, err, test.want)
			require.ErrorContains(t, err, "NAME@TIME:DURATION")
		})
	}
}

func TestFailovers(t *testing.T) {
	t.Parallel()
	plan, err := Parse("kill-leader@1s,lose-leader@2s,term-leader@3s,stop-leader@4s,kill-projector@5s,drop-servicebus@6s")
	require.NoError(t, err)
	require.Equal(t, 4, plan.Failovers())
	require.True(t, plan.Has(DropServiceBus))
	require.False(t, plan.Has(Blob503))
}

// Every kind is in the help and can be parsed, and its harm hits either the leader or the servers,
// not both.
func TestEveryKindIsInTheHelp(t *testing.T) {
	t.Parallel()
	help := Help()
	require.Equal(t, len(kinds), strings.Count(help, "\n"))
	for _, k := range kinds {
		plan, err := Parse(string(k.Kind) + "@1s")
		require.NoError(t, err)
		require.Equal(t, Plan{{k.Kind, time.Second, k.Lasts}}, plan)
		require.Regexp(t, `(?m)^  `+string(k.Kind)+`[ [].*`+regexp.QuoteMeta(k.Says)+`$`, help)
		require.False(t, k.Kind.OnLeader() && k.Kind.OnServers())
	}
	require.False(t, KillProjector.OnServers())
	require.True(t, LoseAck.OnServers())
}
