//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/tests/internal/child"
	"github.com/sluice-cdc/sluice/tests/internal/pty"
)

const ctrlC = "\x03"

// seated is a program at a terminal of its own.
type seated struct {
	cmd     *exec.Cmd
	master  *os.File
	screen  *pty.Screen
	written bytes.Buffer // what the program has written, with its control sequences
}

// sit starts a program at a terminal of so many columns.
func sit(t *testing.T, columns int, cmd *exec.Cmd) *seated {
	t.Helper()
	master, terminal, err := pty.Open(columns, 24)
	require.NoError(t, err)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, cmd.Start())
	require.NoError(t, terminal.Close())
	t.Cleanup(func() { _ = master.Close() }) // a test may have closed it
	return &seated{cmd: cmd, master: master, screen: &pty.Screen{Columns: columns, Rows: 24}}
}

// read shows what the program writes next; false when it has ended.
func (s *seated) read() bool {
	buffer := make([]byte, 64<<10)
	n, err := s.master.Read(buffer)
	_, _ = s.screen.Write(buffer[:n]) // it never fails
	s.written.Write(buffer[:n])
	return err == nil
}

func (s *seated) until(t *testing.T, text string) {
	t.Helper()
	for !bytes.Contains(s.written.Bytes(), []byte(text)) {
		if !s.read() {
			t.Fatalf("the program ends before %q:\n%s", text, strings.Join(s.screen.Lines(), "\n"))
		}
	}
}

// press types a key.
func (s *seated) press(t *testing.T, key string) {
	t.Helper()
	_, err := s.master.WriteString(key)
	require.NoError(t, err)
}

// end reads to the end and returns the exit code and what the terminal shows.
func (s *seated) end(t *testing.T) (code int, lines []string) {
	t.Helper()
	for s.read() {
	}
	_ = s.cmd.Wait() // the code is returned
	requireNothingLeft(t, s.cmd)
	return s.cmd.ProcessState.ExitCode(), s.screen.Lines()
}

// makeRun prepares `make run` on a user's collection, as the README shows it.
func (c command) makeRun(t *testing.T, th *theirs, collection string, more ...string) *exec.Cmd {
	t.Helper()
	root, err := child.Checkout()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // it builds the services, and may find an empty cache
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "make", append([]string{"run"}, append(th.env(collection), more...)...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir(), "TERM=xterm", "MAKELEVEL=", "MAKEFLAGS=")
	return cmd
}

// firstContact is what a new user does first, at a terminal: `make run` on a scratch collection
// that was dropped and created before, and is written to, dropped, written to again, renamed away
// and written to again, while MongoDB elects; then Ctrl-C. The exit code is that of the comparison,
// and make adds nothing to it.
func firstContact(t *testing.T, c command) {
	th := newTheirs(t)
	db := th.client.Database("app")
	scratch := db.Collection("scratch")
	insert := func(ids ...int) {
		for _, id := range ids {
			_, err := scratch.InsertOne(t.Context(), bson.D{{Key: "_id", Value: id}})
			for mongodb.HasCode(err, mongodb.NotWritablePrimary) {
				require.NoError(t, retry.Sleep(t.Context(), 10*time.Millisecond))
				_, err = scratch.InsertOne(t.Context(), bson.D{{Key: "_id", Value: id}})
			}
			require.NoError(t, err)
		}
	}
	insert(0)
	require.NoError(t, scratch.Drop(t.Context()))
	require.NoError(t, db.CreateCollection(t.Context(), "scratch"))
	s := sit(t, 80, c.makeRun(t, th, "scratch"))
	s.until(t, "write to your collection and watch")
	insert(1, 2, 3)
	s.until(t, "applied    3 ")
	require.NoError(t, scratch.Drop(t.Context()))
	s.until(t, "app.scratch was dropped")
	insert(4, 5)
	s.until(t, "applied    5 ")
	admin := th.client.Database("admin")
	require.NoError(t, admin.RunCommand(t.Context(), bson.D{{Key: "renameCollection", Value: "app.scratch"}, {Key: "to", Value: "app.old"}}).Err())
	s.until(t, "app.scratch was renamed")
	require.NoError(t, admin.RunCommand(t.Context(), bson.D{{Key: "replSetStepDown", Value: 1}, {Key: "force", Value: true}}).Err())
	insert(5, 6, 7)
	s.until(t, "applied    8 ")
	s.press(t, ctrlC)
	code, lines := s.end(t)
	text := strings.Join(lines, "\n")
	require.Zero(t, code, text)
	require.Contains(t, text, "EXACTLY RIGHT: 3 of 3 documents")
	require.Contains(t, text, "8 seen, 8 published, 8 applied")
	require.Contains(t, strings.Join(strings.Fields(text), " "), "; 4 more went with a collection that was dropped, renamed or replaced)")
	for _, line := range lines {
		require.NotContains(t, line, "Error", "neither the program's nor make's")
		require.NotRegexp(t, `^  (leader|standby|published) `, line, "a block that was not taken away")
	}
	require.NotContains(t, s.written.String(), "lag -")
	require.NotContains(t, s.written.String(), "lag        -")
}

// followsWhereReplacementsAreAccepted checks that with ON_COLLECTION_REPLACED=continue, which the
// error of the other test names, the run continues with the collection that $out or
// renameCollection has put in place of the watched one.
func followsWhereReplacementsAreAccepted(t *testing.T, c command) {
	th := newTheirs(t)
	db := th.client.Database("app")
	th.insert(t, "orders", "orders")
	th.insert(t, "other", "other")
	s := sit(t, 80, c.makeRun(t, th, "orders", "ON_COLLECTION_REPLACED=continue"))
	s.until(t, "write to your collection and watch")
	cursor, err := db.Collection("other").Aggregate(t.Context(), bson.A{bson.D{{Key: "$out", Value: "orders"}}})
	require.NoError(t, err)
	require.NoError(t, cursor.Close(t.Context()))
	s.until(t, "app.orders was replaced by another collection")
	_, err = db.Collection("orders").UpdateByID(t.Context(), "other", bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: 1}}}})
	require.NoError(t, err)
	s.until(t, "applied    1 ")
	s.press(t, ctrlC)
	code, lines := s.end(t)
	text := strings.Join(lines, "\n")
	require.Zero(t, code, text)
	require.Contains(t, text, "EXACTLY RIGHT: 1 of 1 documents")
}

// fitsEveryTerminal: on a terminal of any width the block stays in its place, and no line of the
// report is broken within a word.
func fitsEveryTerminal(t *testing.T, c command) {
	th := newTheirs(t)
	for _, columns := range []int{40, 80, 200} {
		name := fmt.Sprintf("orders%d", columns)
		require.NoError(t, th.client.Database("app").CreateCollection(t.Context(), name))
		s := sit(t, columns, c.with(append(th.env(name), "TERM=xterm")...).command(t, "--follow"))
		s.until(t, "watch;")
		th.insert(t, name, 0, 1, 2)
		s.until(t, "applied    3 ")
		blocks := 0
		for _, line := range s.screen.Lines() {
			if strings.HasPrefix(line, "  leader ") {
				blocks++
			}
		}
		require.Equal(t, 1, blocks, "the block is refreshed in its place:\n%s", strings.Join(s.screen.Lines(), "\n"))
		s.press(t, ctrlC)
		code, lines := s.end(t)
		text := strings.Join(lines, "\n")
		require.Zero(t, code, text)
		require.Contains(t, strings.Join(strings.Fields(text), " "), "EXACTLY RIGHT: 3 of 3 documents (every document that changed, in the mirror against its source)")
		for line := range strings.SplitSeq(strings.ReplaceAll(s.written.String(), "\r", ""), "\n") {
			line = regexp.MustCompile("\x1b\\[\\d*[AJ]").ReplaceAllString(strings.TrimPrefix(line, "^C"), "")
			require.LessOrEqual(t, utf8.RuneCountInString(line), columns, "%q", line)
		}
		require.NotRegexp(t, "\x1b\\[[\\d;]*m", s.written.String(), "no colour")
	}
}

// followsAtAnyTerminal: at one that cannot move its cursor there are plain lines, and one that is
// closed ends the run as Ctrl-C does.
func followsAtAnyTerminal(t *testing.T, c command) {
	th := newTheirs(t)
	require.NoError(t, th.client.Database("app").CreateCollection(t.Context(), "orders"))
	report := filepath.Join(t.TempDir(), "report.json")
	s := sit(t, 80, c.with(append(th.env("orders"), "TERM=dumb")...).command(t, "--follow", "--report", report))
	s.until(t, "write to your collection and watch")
	th.insert(t, "orders", 1)
	s.until(t, "applied 1,")
	require.NotContains(t, s.written.String(), "\x1b")
	require.NoError(t, s.master.Close())
	require.NoError(t, s.cmd.Wait(), "the run ends as if it was interrupted, and everything is right")
	requireNothingLeft(t, s.cmd)
	text, err := os.ReadFile(report)
	require.NoError(t, err)
	require.Contains(t, string(text), `"aggregates": 1`)
}
