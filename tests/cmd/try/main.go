// Command try plays wrong configurations and odd inputs against the built programs on the embedded stack, and prints a table:
// what each of them said, in how many milliseconds, and with which exit code. The table is for people to read; the exit code is 1
// where a line is not as it should be.
//
//	try [--only PART-OF-A-NAME] [--at-once N]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"

	"github.com/sluice-cdc/sluice/shared/terminal"
	"github.com/sluice-cdc/sluice/tests/internal/stack"
)

func main() { os.Exit(try()) }

func try() int {
	only := flag.String("only", "", "the cases whose name has this `part`")
	atOnce := flag.Int("at-once", 2, "how many programs run at once")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	bench, err := open(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "try:", err)
		return 1
	}
	defer bench.close()
	var chosen []tried
	for _, c := range append(configurations(), inputs()...) {
		if strings.Contains(c.name, *only) {
			chosen = append(chosen, c)
		}
	}
	if len(chosen) == 0 {
		fmt.Fprintf(os.Stderr, "try: no case has %q in its name\n", *only)
		return 2
	}
	progress := terminal.Is(os.Stderr)
	outcomes := make([]outcome, len(chosen))
	next := make(chan int)
	var workers sync.WaitGroup
	for range max(*atOnce, 1) {
		workers.Go(func() {
			for i := range next {
				outcomes[i] = bench.play(ctx, i, chosen[i])
			}
		})
	}
	for i := range chosen {
		if progress {
			fmt.Fprintf(os.Stderr, "\r%d of %d: %-60.60s", i+1, len(chosen), chosen[i].name)
		}
		next <- i
	}
	close(next)
	workers.Wait()
	if progress {
		fmt.Fprintf(os.Stderr, "\r%-80s\r", "")
	}
	return table(chosen, outcomes)
}

// table prints what came out, and gives the exit code.
func table(chosen []tried, outcomes []outcome) int {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tTRIED\tPROGRAM\tMS\tEXIT\tSAID")
	wrong := 0
	for i, c := range chosen {
		o, mark := outcomes[i], ""
		if o.wrong != "" {
			mark = "WRONG"
			wrong++
		}
		exit := fmt.Sprint(o.code)
		if o.running {
			exit = "runs"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\n", mark, c.name, c.program, o.took.Milliseconds(), exit, terminal.Printable(shorten(o.said)))
		if o.wrong != "" {
			fmt.Fprintf(w, "\t\t\t\t\t^ %s\n", terminal.Printable(o.wrong))
		}
	}
	_ = w.Flush()
	fmt.Printf("%d tried, %d wrong\n", len(chosen), wrong)
	if wrong > 0 {
		return 1
	}
	return 0
}

func shorten(said string) string {
	const most = 220
	said = strings.Join(strings.Fields(said), " ")
	if runes := []rune(said); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return said
}

// bench is what the programs are tried on.
type bench struct {
	dir     string
	stack   *stack.Stack
	stop    context.CancelFunc
	serving sync.WaitGroup
}

func open(ctx context.Context) (*bench, error) {
	dir, err := os.MkdirTemp("", "sluice-try-")
	if err != nil {
		return nil, err
	}
	b := &bench{dir: dir}
	if err := build(ctx, dir); err != nil {
		return nil, err
	}
	if b.stack, err = stack.New(ctx, stack.Options{}); err != nil {
		return nil, err
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stop = stop
	b.serving.Go(func() { _ = b.stack.Run(serving) })
	return b, nil
}

func (b *bench) close() {
	b.stop()
	b.serving.Wait()
	_ = os.RemoveAll(b.dir)
}

func (b *bench) program(name string) string { return filepath.Join(b.dir, name) }
