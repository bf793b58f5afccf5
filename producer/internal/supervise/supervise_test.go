package supervise_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer/internal/supervise"
)

// role selects what a child process of this test does.
const role = "SUPERVISE_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "":
		os.Exit(m.Run())
	case "parent": // of a child that waits
		if err := os.Setenv(role, "wait"); err != nil {
			panic(err)
		}
		_ = supervise.Run(context.Background(), os.Args[:1], func(*supervise.Ended, map[string]string) {})
	default:
		child(supervise.Inherited(), os.Getenv(role))
	}
}

func child(parent *supervise.Parent, does string) {
	parent.Hold("shop.orders", "lease-1")
	parent.Hold("shop.carts", "lease-2")
	parent.Hold("shop.orders", "lease-3")
	parent.Hold("shop.carts", "")
	switch does {
	case "crash":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "panic":
		panic("as planned")
	case "fail":
		parent.Hold("shop.orders", "")
		os.Exit(3)
	case "stop":
		stopped := make(chan os.Signal, 1)
		signal.Notify(stopped, syscall.SIGTERM)
		fmt.Println("listening")
		<-stopped
		parent.Hold("shop.orders", "")
	case "wait":
		fmt.Println(os.Getpid())
		parent.Gone()
	}
}

// run runs a child with a given role, and returns what it held at its end.
func run(t *testing.T, ctx context.Context, does string) (held map[string]string, err error) {
	t.Helper()
	t.Setenv(role, does)
	err = supervise.Run(ctx, os.Args[:1], func(_ *supervise.Ended, of map[string]string) { held = of })
	return held, err
}

func TestWhatADeadChildHeldIsReleased(t *testing.T) {
	for does, code := range map[string]int{"crash": 128 + int(syscall.SIGKILL), "panic": 2} {
		t.Run(does, func(t *testing.T) {
			held, err := run(t, t.Context(), does)
			require.Equal(t, map[string]string{"shop.orders": "lease-3"}, held)
			ended, ok := errors.AsType[*supervise.Ended](err)
			require.True(t, ok)
			require.Equal(t, code, ended.ExitCode())
		})
	}
}

func TestAChildWithoutLeasesEndsNormally(t *testing.T) {
	held, err := run(t, t.Context(), "fail")
	require.Nil(t, held)
	require.EqualError(t, err, "the producer's process ended: exit status 3")
}

func TestAStopIsPassedOnAndAwaited(t *testing.T) {
	output := os.Stdout
	t.Cleanup(func() { os.Stdout = output })
	r, w, err := os.Pipe()
	require.NoError(t, err)
	os.Stdout = w
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		_, _ = bufio.NewReader(r).ReadString('\n') // it is ready
		stop()
	}()
	held, err := run(t, ctx, "stop")
	require.NoError(t, err)
	require.Nil(t, held)
}

// A child does not outlive its parent, which could not release its leases.
func TestAChildEndsWithItsParent(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), role+"=parent")
	output, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	lines := bufio.NewReader(output)
	pid, err := lines.ReadString('\n')
	require.NoError(t, err)
	child, err := strconv.Atoi(strings.TrimSpace(pid))
	require.NoError(t, err)
	require.NotEqual(t, parent.Process.Pid, child)
	require.NoError(t, parent.Process.Kill())
	_, err = lines.ReadString('\n') // the child holds it open as long as it lives
	require.Error(t, err)
	require.Error(t, parent.Wait())
}
