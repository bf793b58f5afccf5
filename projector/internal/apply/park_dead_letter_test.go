package apply

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// G6: a row of a snapshot is no longer needed once its version was applied, although its position,
// which is that of the snapshot, is above the guard. Otherwise a replay that was interrupted would
// leave it in the dead-letter queue for ever.
func TestG6TheStateOfARowInTheDeadLetterQueue(t *testing.T) {
	for _, test := range []struct {
		name           string
		version        int64
		ignoreVersions bool
		want           DeadLetterState
	}{
		{"a version that was reached", 5, false, Done},
		{"a later version", 6, false, Waiting},
		{"no version", 0, false, Waiting},
		{"versions that leave numbers out", 5, true, Waiting},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := envelope.Change{Position: "826", Version: test.version, Operation: envelope.Insert, Row: envelope.RowRepeat}
			a := &Applier{ignoreVersions: test.ignoreVersions}
			require.Equal(t, test.want, a.DeadLetterState(Guard{Position: "825", Version: 5, First: 2}, &c, ReasonParked))
		})
	}
}

// G1, G6: a message that the broker dead-lettered is known to be applied only if its very position
// or its version proves it.
func TestG1G6TheStateOfADeadLetter(t *testing.T) {
	const broker = "MaxDeliveryCountExceeded"
	stands := Guard{Position: "825", Version: 5, First: 2}
	for _, test := range []struct {
		name           string
		guard          Guard
		position       string
		version        int64
		reason         string
		ignoreVersions bool
		want           DeadLetterState
	}{
		{"above the guard", stands, "826", 6, broker, false, Waiting},
		{"of nothing applied", Guard{}, "826", 6, broker, false, Waiting},
		{"no position", stands, "", 0, "MissingProperty", false, Waiting},
		{"the last one applied", stands, "825", 0, broker, false, Done},
		{"a version that was counted", stands, "824", 4, broker, false, Done},
		{"the first that was counted", stands, "822", 2, broker, false, Done},
		{"a version before the count began", stands, "821", 1, broker, false, Overtaken},
		{"a guard that does not say where the count began", Guard{Position: "825", Version: 5}, "824", 4, broker, false, Overtaken},
		{"versions that leave numbers out", stands, "824", 4, broker, true, Overtaken},
		{"no version", stands, "824", 0, broker, false, Overtaken},
		{"too old", stands, "824", 0, "TTLExpiredException", false, Overtaken},
		{"another program's reason", stands, "824", 0, "", false, Overtaken},
		{"parked by us, and behind the guard", stands, "824", 0, ReasonRefused, false, Done},
		{"parked by us, and above the guard", stands, "826", 0, ReasonRefused, false, Waiting},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := envelope.Change{Position: test.position, Version: test.version, Operation: envelope.Insert}
			a := &Applier{ignoreVersions: test.ignoreVersions}
			require.Equal(t, test.want, a.DeadLetterState(test.guard, &c, test.reason))
		})
	}
}
