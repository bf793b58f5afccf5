package console

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

const (
	// window is the least number of samples across a sparkline: one minute.
	window = 60
	// points is the most points of a sparkline.
	points = 120
	// sparkWidth and sparkHeight are the size of the drawing, in its own units.
	sparkWidth, sparkHeight = 240, 36
)

// sparkline draws values as an image with a name for those who cannot see it. Values below 0 are
// unknown and are left out.
func sparkline(name, unit string, values []float64) markup {
	span := max(window, len(values))
	bucket := max(1, int(math.Ceil(float64(span)/points)))
	most := 0.0
	var drawn []float64
	for part := range slices.Chunk(values, bucket) {
		top := max(-1, slices.Max(part))
		drawn, most = append(drawn, top), max(most, top)
	}
	minutes := int(math.Ceil(float64(span) / 60))
	label := fmt.Sprintf("%s, last %d min: no values", name, minutes)
	if now := len(values) - 1; now >= 0 && values[now] >= 0 {
		label = fmt.Sprintf("%s, last %d min: now %s%s, at most %s%s", name, minutes, short(values[now]), unit, short(most), unit)
	}
	var line strings.Builder
	step := float64(sparkWidth) / float64(span/bucket)
	x := float64(sparkWidth) - step*float64(len(drawn)-1)
	first, last := -1.0, -1.0
	for i, v := range drawn {
		if v < 0 {
			continue
		}
		at := max(0, x+float64(i)*step)
		y := float64(sparkHeight-2) - v/max(most, 1)*float64(sparkHeight-5)
		if first < 0 {
			first = at
		}
		last = at
		fmt.Fprintf(&line, "%.1f,%.1f ", at, y)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="spark" viewBox="0 0 %d %d" preserveAspectRatio="none" role="img" aria-label="%s">`,
		sparkWidth, sparkHeight, html.EscapeString(label))
	if first >= 0 {
		fmt.Fprintf(&b, `<polygon points="%.1f,%d %s%.1f,%d"/>`, first, sparkHeight, line.String(), last, sparkHeight)
		fmt.Fprintf(&b, `<polyline points="%s"/>`, strings.TrimSpace(line.String()))
	}
	b.WriteString("</svg>")
	return markup(b.String())
}

// short writes a number as people read it in a line.
func short(v float64) string {
	if v >= 10 || v == math.Trunc(v) {
		return count(int64(math.Round(v)))
	}
	return fmt.Sprintf("%.1f", v)
}
