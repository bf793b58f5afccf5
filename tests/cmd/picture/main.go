//go:build linux

// Command picture makes the moving picture of the README: it runs the local command on a terminal
// of its own, records the screen, and writes the recording as an SVG that plays in a few seconds,
// repeatedly, by CSS alone.
//
//	picture OUT.svg "PROMPT" COMMAND [ARGUMENT…]
//
// PROMPT is shown as the command line. Everything in the picture comes from the recording, played
// faster than it was made. A run that fails makes no picture.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/sluice-cdc/sluice/tests/internal/pty"
)

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "picture: usage: picture OUT.svg PROMPT COMMAND [ARGUMENT…]")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := picture(ctx, os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

func picture(ctx context.Context, out, prompt string, command []string) error {
	frames, err := record(ctx, prompt, command)
	if err != nil {
		return err
	}
	if err := os.WriteFile(out, render(frames), 0o644); err != nil {
		return fmt.Errorf("write picture: %w", err)
	}
	return nil
}

// frame is the content of a screen from a time on.
type frame struct {
	at    time.Duration
	lines []string
}

// record runs the command to its end and returns the screens that its terminal showed.
func record(ctx context.Context, prompt string, command []string) (frames []frame, err error) {
	master, terminal, err := pty.Open(0, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, master.Close()) }()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	if err := errors.Join(cmd.Start(), terminal.Close()); err != nil {
		return nil, fmt.Errorf("start %s: %w", command[0], err)
	}
	began, screen := time.Now(), &pty.Screen{}
	fmt.Fprintf(screen, "$ %s\n", prompt)
	frames = append(frames, frame{0, screen.Lines()})
	for buffer := make([]byte, 64<<10); ; {
		n, err := master.Read(buffer)
		if n > 0 {
			_, _ = screen.Write(buffer[:n]) // it never fails
			frames = append(frames, frame{time.Since(began), screen.Lines()})
		}
		if err != nil {
			break // the last process on the terminal has ended
		}
	}
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("run %s: %w; the screen: %v", command[0], err, screen.Lines())
	}
	return frames, nil
}
