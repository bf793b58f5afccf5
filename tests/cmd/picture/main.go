//go:build linux

// Command picture makes the moving picture of the README: it runs the local command on a terminal of its own, notes when the
// screen changes to what, and writes that as an SVG which plays in real time, again and again, by CSS alone.
//
//	picture OUT.svg "PROMPT" COMMAND [ARGUMENT…]
//
// PROMPT is shown as what was typed. Nothing in the picture is made up: a run that fails makes no picture.
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

	"golang.org/x/sys/unix"
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

// record runs the command to its end and returns what its terminal showed, and when.
func record(ctx context.Context, prompt string, command []string) (frames []frame, err error) {
	master, terminal, err := open()
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
	began, screen := time.Now(), &screen{lines: []string{"$ " + prompt}, row: 1}
	frames = append(frames, frame{0, screen.copy()})
	for buffer := make([]byte, 64<<10); ; {
		n, err := master.Read(buffer)
		if n > 0 {
			screen.write(buffer[:n])
			frames = append(frames, frame{time.Since(began), screen.copy()})
		}
		if err != nil {
			break // the last process that had the terminal has ended
		}
	}
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("run %s: %w; its last words: %v", command[0], err, screen.lines)
	}
	return frames, nil
}

// open makes a terminal: what is written to it is read from the master. [pty(7)]
func open() (master, terminal *os.File, err error) {
	if master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	n, err := unix.IoctlGetUint32(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open a terminal: %w", err), master.Close())
	}
	return master, terminal, nil
}
