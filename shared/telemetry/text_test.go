package telemetry

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTextShowsAStatusAsAttributesAndLeavesOutWhatIsNotKnown(t *testing.T) {
	type stream struct {
		Stream   string   `json:"stream"`
		Leads    bool     `json:"leads"`
		LagMS    int64    `json:"lag_ms"`
		Position string   `json:"position"`
		Headroom *int64   `json:"oplog_headroom_seconds"`
		Answer   *float64 `json:"first_answer_seconds"`
		Error    string   `json:"error,omitempty"`
	}
	var out bytes.Buffer
	log := LoggerIn(FormatText, &out, slog.LevelInfo, "producer", "p-1")
	position := "826B00EBB8000000022B042C0100296E5A1004AB463C6F707265640004"
	log.Info("status", "status", stream{Stream: "shop.events", LagMS: -1, Position: position, Answer: new(float64)})
	log.Info("status", "status", map[string]any{"streams": []stream{{Stream: "shop.events", LagMS: 3}}, "none": []int{}})
	log.Warn("parked", KeyPosition, position, KeyError, errNothing{}, "n", []int{1})
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 3)
	require.Contains(t, lines[0], "msg=status status.stream=shop.events status.leads=false status.position=826B00EBB8000000022B…640004 status.first_answer_seconds=0")
	require.True(t, strings.HasSuffix(lines[0], "=0"), lines[0])
	require.True(t, strings.HasSuffix(lines[1], "status.streams.0.stream=shop.events status.streams.0.leads=false status.streams.0.lag_ms=3"), lines[1])
	require.True(t, strings.HasSuffix(lines[2], "position=826B00EBB8000000022B…640004 error=\"nothing came\" n=[1]"), lines[2])
}

type errNothing struct{}

func (errNothing) Error() string { return "nothing came" }
