//go:build linux

package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// playing is how long the recording plays, whatever its length; then its last screen, with the
	// verdict, stays for hold, and the picture starts again.
	playing, hold = 6500 * time.Millisecond, 3 * time.Second
	// grain is the shortest time that a screen is shown.
	grain = 150 * time.Millisecond
	// rows is the height of the terminal: older lines scroll out of it.
	rows = 18

	lineHeight, charWidth, margin = 20, 8.45, 14
)

// span is a line of text that one row shows for a while.
type span struct {
	row      int
	text     string
	from, to time.Duration
	last     bool // shown at the end
}

// played returns the screens as the picture shows them: as high as the terminal and as fast as they
// play. speed is how many times faster than the recording that is.
func played(recorded []frame) (frames []frame, speed float64) {
	speed = max(recorded[len(recorded)-1].at.Seconds()/playing.Seconds(), 1)
	for _, f := range recorded {
		lines := f.lines[max(len(f.lines)-rows, 0):]
		frames = append(frames, frame{time.Duration(float64(f.at) / speed), lines})
	}
	return frames, speed
}

// spans returns the rows of all frames: each text once, with the time during which it is shown.
func spans(frames []frame, end time.Duration) (found []span) {
	showing := map[int]*span{}
	for i, f := range frames {
		if i+1 < len(frames) && i > 0 && frames[i+1].at/grain == f.at/grain {
			continue // the next one is shown instead
		}
		at := f.at
		for row := range height(frames) {
			text := ""
			if row < len(f.lines) {
				text = f.lines[row]
			}
			if s := showing[row]; s != nil && s.text == text {
				continue
			} else if s != nil {
				s.to = at
				found = append(found, *s)
				delete(showing, row)
			}
			if strings.TrimSpace(text) != "" {
				showing[row] = &span{row: row, text: text, from: at}
			}
		}
	}
	for row := range height(frames) {
		if s := showing[row]; s != nil {
			s.to, s.last = end, true
			found = append(found, *s)
		}
	}
	return found
}

func height(frames []frame) (rows int) {
	for _, f := range frames {
		rows = max(rows, len(f.lines))
	}
	return rows
}

// render returns the picture. For a viewer who prefers reduced motion it is the last screen.
func render(recorded []frame) []byte {
	frames, speed := played(recorded)
	end := frames[len(frames)-1].at + hold
	all := spans(frames, end)
	width := 0
	for _, s := range all {
		width = max(width, utf8.RuneCountInString(s.text))
	}
	w, h := int(float64(width)*charWidth)+2*margin, height(frames)*lineHeight+2*margin

	var style, body bytes.Buffer
	animations := map[string]string{} // by the times
	for _, s := range all {
		class := tint(s.text)
		if s.last {
			class += " z"
		}
		if s.from > 0 || !s.last {
			times := fmt.Sprintf("%.2f-%.2f", percent(s.from, end), percent(s.to, end))
			name, known := animations[times]
			if !known {
				name = fmt.Sprintf("k%d", len(animations))
				animations[times] = name
				fmt.Fprintf(&style, "@keyframes %s{0%%{visibility:%s}", name, visible(s.from == 0))
				if s.from > 0 {
					fmt.Fprintf(&style, "%.2f%%{visibility:visible}", percent(s.from, end))
				}
				if !s.last {
					fmt.Fprintf(&style, "%.2f%%{visibility:hidden}", percent(s.to, end))
				}
				fmt.Fprintf(&style, "}.%s{animation-name:%s}\n", name, name)
			}
			class += " " + name
		}
		fmt.Fprintf(&body, `<text y="%d" class="%s">`, margin+lineHeight*(s.row+1)-4, strings.TrimSpace(class))
		_ = xml.EscapeText(&body, []byte(strings.TrimRight(s.text, " "))) // a buffer accepts everything
		body.WriteString("</text>\n")
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">
<title>A run of the whole pipeline on one machine, recorded by make picture and played at %.1f times its speed</title>
<style>
text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#c9d1d9;white-space:pre;visibility:hidden;animation:%.2fs step-end infinite}
.z,.p{visibility:visible}
.p{fill:#79c0ff}.bad{fill:#ffa657}.good{fill:#7ee787;font-weight:bold}.dim{fill:#8b949e}
@media (prefers-reduced-motion:reduce){text{animation:none!important}}
`, w, h, w, h, speed, end.Seconds())
	out.Write(style.Bytes())
	fmt.Fprintf(&out, "</style>\n<rect width=\"%d\" height=\"%d\" rx=\"8\" fill=\"#0d1117\"/>\n<g transform=\"translate(%d)\" xml:space=\"preserve\">\n", w, h, margin)
	out.Write(body.Bytes())
	out.WriteString("</g>\n</svg>\n")
	return out.Bytes()
}

func percent(at, end time.Duration) float64 { return 100 * at.Seconds() / end.Seconds() }

func visible(yes bool) string {
	if yes {
		return "visible"
	}
	return "hidden"
}

// tint returns the class of a line by its text.
func tint(line string) string {
	switch {
	case strings.HasPrefix(line, "$ "):
		return "p"
	case strings.Contains(line, "EXACTLY RIGHT"):
		return "good"
	case strings.Contains(line, "SIG"), strings.Contains(line, "none, waiting"), strings.Contains(line, "lose-ack"), strings.Contains(line, "mongo-stepdown"):
		return "bad"
	case strings.Contains(line, "starting "), strings.Contains(line, "the embedded stack"):
		return "dim"
	}
	return ""
}
