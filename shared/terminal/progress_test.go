package terminal

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

func TestWhatTakesLongShowsHowFarItIs(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		var screen bytes.Buffer
		p := start(&screen, "doctor")
		time.Sleep(1900 * time.Millisecond)
		require.Empty(t, screen.String(), "two seconds are not long")
		p.Set("verify", 3, 12)
		time.Sleep(200 * time.Millisecond)
		virtualtime.Wait()
		require.Equal(t, "\r\x1b[Kverify [======                  ] 3 of 12, 2s", screen.String())

		_, err := p.Through(&screen).Write([]byte("a result\n"))
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(screen.String(), "2s\r\x1b[Ka result\n"), "%q", screen.String())
		time.Sleep(time.Second)
		p.End()
		require.True(t, strings.HasSuffix(screen.String(), "\r\x1b[K"), "the line is taken away")
		before := screen.Len()
		time.Sleep(time.Minute)
		require.Equal(t, before, screen.Len())
	})
}

func TestWithoutATerminalNothingIsShown(t *testing.T) {
	var out bytes.Buffer
	p := StartProgress(&out, "verify")
	require.Nil(t, p)
	p.Set("verify", 1, 2)
	p.End()
	require.Same(t, &out, p.Through(&out), "what is written goes where it went")
	require.Empty(t, out.String())
}

func TestProgressFitsALine(t *testing.T) {
	for _, c := range []struct {
		what        string
		done, total int64
		rate        float64
		want        string
	}{
		{"doctor: mongodb", 0, 0, 0, "doctor: mongodb, 3s"},
		{"verify", 1200, 0, 0, "verify 1200, 3s"},
		{"verify", 13, 12, 4, "verify [" + strings.Repeat("=", 24) + "] 13 of 13, 3s"},
		{"build", 450_000, 1_000_000, 9875, "build [" + strings.Repeat("=", 10) + strings.Repeat(" ", 14) + "] 450000 of 1000000, 9875/s, 56s to go"},
		{"an aggregate's name can be as long as it likes", 0, 0, 0, "an aggregate's name can be as…, 3s"},
		{"a\nb", 0, 0, 0, `a\nb, 3s`},
	} {
		require.Equal(t, c.want, line(c.what, c.done, c.total, 3*time.Second, c.rate))
	}
}
