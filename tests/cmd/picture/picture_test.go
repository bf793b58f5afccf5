//go:build linux

package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/tree"
)

func TestAPictureShowsEachLineForAsLongAsItStays(t *testing.T) {
	t.Parallel()
	const second = time.Second
	got := spans([]frame{
		{0, []string{"$ run"}},
		{second, []string{"$ run", "a", "1"}},
		{2 * second, []string{"$ run", "a", "2"}},
		{3 * second, []string{"$ run", "a", "b"}},
	}, 10*second)
	require.Equal(t, []span{
		{2, "1", second, 2 * second, false},
		{2, "2", 2 * second, 3 * second, false},
		{0, "$ run", 0, 10 * second, true},
		{1, "a", second, 10 * second, true},
		{2, "b", 3 * second, 10 * second, true},
	}, got)
}

func TestARecordingPlaysInAFewSecondsOnATerminalThatScrolls(t *testing.T) {
	t.Parallel()
	long := make([]string, rows+3)
	for i := range long {
		long[i] = fmt.Sprint(i)
	}
	got, speed := played([]frame{{0, []string{"$ run"}}, {4 * playing, long}})
	require.InDelta(t, 4, speed, 0.001)
	require.Equal(t, []frame{{0, []string{"$ run"}}, {playing, long[3:]}}, got)
	_, speed = played([]frame{{playing / 2, long}})
	require.InDelta(t, 1, speed, 0.001, "a short run is not slowed down")
}

// GitHub can show the committed picture: well-formed XML, small, without scripts; and its run
// succeeded.
func TestTheReadmesPicture(t *testing.T) {
	t.Parallel()
	tree.Depend()
	text, err := os.ReadFile("../../../docs/run.svg")
	require.NoError(t, err)
	require.Less(t, len(text), 200_000)
	for d := xml.NewDecoder(strings.NewReader(string(text))); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if e, ok := token.(xml.StartElement); ok {
			require.Contains(t, []string{"svg", "title", "style", "rect", "g", "text"}, e.Name.Local)
		}
	}
	require.Contains(t, string(text), "EXACTLY RIGHT")
	require.Contains(t, string(text), "$ make run CHAOS=")
	require.NotRegexp(t, regexp.MustCompile(`@keyframes (k\d+)\{0%\{visibility:\w+\}0\.00%`), string(text), "a line that is never shown")
}
