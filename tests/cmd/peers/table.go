package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// result is one cell. If compare is set, its ratio to Sluice's value, which stands in the first
// column, is printed beside it.
type result struct {
	name    string
	value   float64
	digits  int
	compare bool
	words   string // instead of the value
}

func (r result) text() string {
	if r.words != "" {
		return r.words
	}
	return thousands(fmt.Sprintf("%.*f", r.digits, r.value))
}

// thousands inserts commas into the integer part of a number.
func thousands(number string) string {
	whole, fraction, _ := strings.Cut(number, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction != "" {
		whole += "." + fraction
	}
	return whole
}

// column is a measurement of a peer.
type column struct {
	peer    string
	load    string // the load average of one minute, before and after
	results []result
}

// table returns the columns as Markdown. The rows are those of the first column.
func table(name string, columns []column) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |", name)
	for _, c := range columns {
		fmt.Fprintf(&b, " %s |", c.peer)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for i, first := range columns[0].results {
		fmt.Fprintf(&b, "| %s |", first.name)
		for n, c := range columns {
			if i >= len(c.results) {
				b.WriteString(" – |")
				continue
			}
			r := c.results[i]
			if n > 0 && r.compare && first.value > 0 && columns[0].peer == sluice && r.words == "" {
				fmt.Fprintf(&b, " %s (×%.2f) |", r.text(), r.value/first.value)
			} else {
				fmt.Fprintf(&b, " %s |", r.text())
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("| load before, after |")
	for _, c := range columns {
		fmt.Fprintf(&b, " %s |", c.load)
	}
	return b.String() + "\n"
}

// describe returns the date, the machine and the versions in one paragraph.
func describe(ctx context.Context, uri string) (string, error) {
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return "", err
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	var build struct{ Version string }
	if err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&build); err != nil {
		return "", fmt.Errorf("read MongoDB's version: %w", err)
	}
	parts := []string{time.Now().Format(time.DateOnly), fmt.Sprintf("%d processors (%s)", runtime.NumCPU(), processor()), "MongoDB " + build.Version, runtime.Version()}
	for _, command := range [][]string{{"node", "--version"}, {"python3", "--version"}, {"java", "-version"}} {
		out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput() //nolint:gosec // the three above
		if err == nil {
			line, _, _ := bytes.Cut(bytes.TrimSpace(out), []byte("\n"))
			parts = append(parts, command[0]+": "+string(line))
		}
	}
	return strings.Join(parts, "; ") + ".", nil
}

// processor returns the name of the processor, from Linux's /proc.
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo") // elsewhere the name is unknown
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// loadAverage returns the load average of the last minute.
func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	load, _, _ := strings.Cut(string(text), " ")
	return load
}
