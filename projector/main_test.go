package projector

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector/projection"
)

// named is a projection of a user's own.
type named string

func (n named) Name() string                                       { return string(n) }
func (named) Project(projection.Event) ([]projection.Write, error) { return nil, nil }

// configure sets what a projector needs to start; nothing listens there.
func configure(t *testing.T, more ...string) {
	t.Helper()
	for _, s := range append([]string{
		"MONGODB_URI=mongodb://127.0.0.1:1/?directConnection=true", "READ_MODEL_DATABASE=readmodel", "SERVICE_BUS_QUEUE=q",
		"SERVICE_BUS_CONNECTION_STRING=Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true;",
		"SHUTDOWN_TIMEOUT=2s", "SETTLE_TIMEOUT=1s", "HTTP_ADDR=", "PROJECTION=", "OTEL_EXPORTER_OTLP_ENDPOINT=", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=",
	}, more...) {
		name, value, _ := strings.Cut(s, "=")
		t.Setenv(name, value)
	}
}

func TestAProgramRunsItsOnlyProjection(t *testing.T) {
	for _, c := range []struct {
		program []projection.Projection
		setting string
		runs    string
		refused string
	}{
		{nil, "", "timeline", ""},
		{nil, "orders", "orders", ""},
		{[]projection.Projection{named("totals")}, "", "totals", ""},
		{[]projection.Projection{named("totals")}, "totals", "totals", ""},
		{[]projection.Projection{named("totals"), named("names")}, "names", "names", ""},
		{[]projection.Projection{named("totals"), named("names")}, "", "", "PROJECTION: is required, because the program has several; set one of names, totals"},
		{[]projection.Projection{named("totals")}, "timeline", "", "PROJECTION: is not one of totals"},
		{[]projection.Projection{named("totals"), named("totals")}, "", "", `projector: register projection "totals": the name is taken`},
	} {
		configure(t, "PROJECTION="+c.setting)
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // a projector that is stopped before it began logs anyway what it is
		var out, errOut bytes.Buffer
		code := serve(ctx, "projector", nil, c.program, &out, &errOut)
		if c.refused != "" {
			require.Equal(t, 2, code, "%+v", c)
			require.Contains(t, errOut.String(), c.refused)
			continue
		}
		require.Equal(t, 0, code, "%s%s", &out, &errOut)
		require.Contains(t, out.String(), `"msg":"projector starting","service":"projector"`)
		require.Contains(t, out.String(), `"projection":"`+c.runs+`"`)
		require.Contains(t, out.String(), `"msg":"projector stopped"`)
		require.Empty(t, errOut.String())
	}
}

// asProgram makes the test's own program a projector.
const asProgram = "SLUICE_TEST_MAIN"

func TestMainTakesTheProcess(t *testing.T) {
	if os.Getenv(asProgram) != "" {
		os.Args = append(os.Args[:1], strings.Fields(os.Getenv(asProgram))...)
		if os.Args[1] == "run" {
			Main(named("totals"))
		}
		Main()
	}
	configure(t)
	run := func(args string, signal os.Signal) (code int, output string) {
		// #nosec G204 -- the test's own program
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$")
		c.Env = append(os.Environ(), asProgram+"="+args)
		out, err := c.StdoutPipe()
		require.NoError(t, err)
		c.Stderr = c.Stdout
		require.NoError(t, c.Start())
		lines := bufio.NewReader(out)
		if signal != nil {
			for !strings.Contains(output, "projector starting") {
				line, err := lines.ReadString('\n')
				output += line
				require.NoError(t, err, output)
			}
			require.NoError(t, c.Process.Signal(signal))
		}
		rest, err := io.ReadAll(lines)
		require.NoError(t, err)
		err = c.Wait()
		exit, _ := errors.AsType[*exec.ExitError](err)
		if exit != nil {
			code = exit.ExitCode()
		}
		return code, output + string(rest)
	}
	for _, signal := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		code, output := run("run", signal)
		require.Zero(t, code, output)
		require.Contains(t, output, `"projection":"totals"`)
		require.Contains(t, output, `"msg":"projector stopped"`)
	}
	code, output := run("help", nil)
	require.Zero(t, code, output)
	require.Contains(t, output, "usage: projector.test [COMMAND]", "by its own name")
	code, output = run("stauts", nil)
	require.Equal(t, 2, code, output)
	require.Contains(t, output, `there is no command "stauts"`)
}
