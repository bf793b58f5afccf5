package checkup_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/checkup"
)

func TestAClockThatIsOffIsNamed(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for theirs, want := range map[time.Duration]string{
		0: "", time.Minute: "", -time.Minute: "",
		20 * time.Minute:  "this machine's clock is 20m0s behind the service's",
		-20 * time.Minute: "this machine's clock is 20m0s ahead of the service's",
	} {
		header := http.Header{"Date": {now.Add(theirs).Format(http.TimeFormat)}}
		require.Equal(t, want, checkup.Clock(header, now))
	}
	require.Empty(t, checkup.Clock(http.Header{}, now), "a response without a Date")

	require.Empty(t, checkup.ClockByLock(now.Add(30*time.Second), now))
	require.Empty(t, checkup.ClockByLock(now.Add(5*time.Minute+2*time.Second), now), "the longest")
	require.Contains(t, checkup.ClockByLock(now.Add(-10*time.Minute), now), "a lock ends 10m0s before it begins: this machine's clock is ahead")
	require.Contains(t, checkup.ClockByLock(now.Add(20*time.Minute), now), "a lock lasts 20m0s, longer than any can: this machine's clock is behind")
}
