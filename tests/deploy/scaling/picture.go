package scaling

import (
	"fmt"
	"strings"
)

const (
	panelWidth, panelHeight = 300, 120
	left, top, gap          = 56, 46, 44
)

// Picture draws the runs of every scenario in each tier, with the given number of messages for each
// replica, as an SVG: waiting changes as a grey area, paid replicas as a line, useful ones as an
// area below it.
func Picture(messages int, replica Replica) string {
	var b strings.Builder
	width := left + len(Scenarios)*(panelWidth+gap)
	height := top + len(Tiers)*(panelHeight+gap) + 26
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n", width, height)
	b.WriteString(`<rect width="100%" height="100%" fill="#ffffff"/>` + "\n")
	for row, tier := range Tiers {
		for column, scenario := range Scenarios {
			x, y := left+column*(panelWidth+gap), top+row*(panelHeight+gap)
			rule := tier.WithTarget(messages)
			panel(&b, x, y, fmt.Sprintf("%s: %s", tier.Name, scenario.Name), Run(tier, rule, replica, scenario.Load, scenario.Seconds), rule.Max)
		}
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" fill="#333333">blue line: replicas paid for (left scale); green: replicas with work; `+
		`grey: changes waiting, to scale within each panel; time in minutes</text>`+"\n", left, height-8)
	b.WriteString("</svg>\n")
	return b.String()
}

func panel(b *strings.Builder, x, y int, title string, run []Second, most int) {
	peak := 1
	for _, s := range run {
		peak = max(peak, s.Waiting)
	}
	fmt.Fprintf(b, `<g transform="translate(%d,%d)"><text x="0" y="-8" fill="#111111">%s (peak %d)</text>`+"\n", x, y, title, peak)
	for n := range most + 1 {
		at := panelHeight - panelHeight*n/most
		fmt.Fprintf(b, `<line x1="0" y1="%d" x2="%d" y2="%d" stroke="#dddddd"/><text x="-12" y="%d" fill="#555555">%d</text>`+"\n", at, panelWidth, at, at+4, n)
	}
	for minute := 0; minute*60 <= len(run); minute += 5 {
		fmt.Fprintf(b, `<text x="%d" y="%d" fill="#555555">%d</text>`+"\n", minute*60*panelWidth/len(run)-3, panelHeight+14, minute)
	}
	area(b, run, "#bbbbbb", func(s Second) float64 { return float64(s.Waiting) / float64(peak) })
	area(b, run, "#8fce8f", func(s Second) float64 { return float64(s.Useful) / float64(most) })
	fmt.Fprintf(b, `<polyline fill="none" stroke="#1f5fbf" stroke-width="1.5" points="%s"/></g>`+"\n",
		points(run, func(s Second) float64 { return float64(s.Replicas) / float64(most) }))
}

func area(b *strings.Builder, run []Second, colour string, value func(Second) float64) {
	fmt.Fprintf(b, `<polygon fill="%s" fill-opacity="0.8" points="0,%d %s %d,%d"/>`+"\n",
		colour, panelHeight, points(run, value), panelWidth, panelHeight)
}

// points leaves out points that lie on a line between their neighbours.
func points(run []Second, value func(Second) float64) string {
	var all []string
	last := -1
	for i, s := range run {
		at := panelHeight - int(value(s)*panelHeight+0.5)
		next := -1
		if i+1 < len(run) {
			next = panelHeight - int(value(run[i+1])*panelHeight+0.5)
		}
		if at != last || at != next {
			all = append(all, fmt.Sprintf("%.1f,%d", float64(i*panelWidth)/float64(len(run)), at))
		}
		last = at
	}
	return strings.Join(all, " ")
}

// summed is the key of a run: everything that determines its result.
type summed struct {
	tier, scenario string
	messages       int
	replica        Replica
}

var summaries = map[summed]Summary{}

// sums returns the summary of a scenario with a target. It is computed once, since the simulation
// takes seconds under the race detector.
func sums(tier Tier, messages int, replica Replica, s Scenario) Summary {
	key := summed{tier.Name, s.Name, messages, replica}
	sum, ok := summaries[key]
	if !ok {
		sum = Summarize(Run(tier, tier.WithTarget(messages), replica, s.Load, s.Seconds))
		summaries[key] = sum
	}
	return sum
}

// Table returns the summaries of every scenario in each tier for each number of messages, as
// Markdown, below a description of the scenarios.
func Table(messages []int, replica Replica) string {
	var b strings.Builder
	for _, scenario := range Scenarios {
		fmt.Fprintf(&b, "- **%s**: %s\n", scenario.Name, scenario.What)
	}
	b.WriteString("\n| tier, load | messages per replica | replicas at most | caught up after | waiting at most | throttled | replica hours | idle |\n")
	b.WriteString("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, tier := range Tiers {
		for _, scenario := range Scenarios {
			for _, n := range messages {
				sum := sums(tier, n, replica, scenario)
				fmt.Fprintf(&b, "| %s, %s | %d | %d | %d s | %d | %d s | %.2f | %.0f %% |\n", tier.Name, scenario.Name, n,
					sum.Peak, sum.CaughtUp, sum.MostWaiting, sum.Throttled, sum.ReplicaHours, 100*sum.IdleShare)
			}
		}
	}
	return b.String()
}
