package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// settings reads n settings from the program's output.
func settings(t *testing.T, r io.Reader, n int) map[string]string {
	t.Helper()
	var text []byte
	for strings.Count(string(text), "\n") < n {
		more := make([]byte, 4096)
		k, err := r.Read(more)
		require.NoError(t, err)
		text = append(text, more[:k]...)
	}
	found := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		found[name] = value
	}
	return found
}

func TestItServesUntilItIsStopped(t *testing.T) {
	config := filepath.Join(t.TempDir(), "Config.json")
	require.NoError(t, os.WriteFile(config, []byte(
		`{"UserConfig":{"Namespaces":[{"Name":"n","Queues":[{"Name":"orders","Properties":{"RequiresSession":true}}]}]}}`), 0o600))
	snapshot := filepath.Join(t.TempDir(), "data")
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- serve(ctx, []string{"--ports", "free", "--config", config, "--snapshot", snapshot}, in, io.Discard)
	}()
	s := settings(t, out, 6)
	require.Equal(t, "orders", s["SERVICE_BUS_QUEUE"])
	for _, url := range []string{s["SERVICE_BUS_ADMINISTRATION"] + "/health", s["EMULATOR_CONTROL"]} {
		resp, err := http.Get(url)
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode, url)
		require.NoError(t, resp.Body.Close())
	}
	http.DefaultClient.CloseIdleConnections()

	// A second program cannot use the same ports.
	_, address, _ := strings.Cut(s["MONGODB_URI"], "127.0.0.1:")
	port, _, _ := strings.Cut(address, "/")
	var complaint bytes.Buffer
	require.Equal(t, 2, serve(t.Context(), []string{"--ports", "mongodb=" + port}, io.Discard, &complaint))
	require.Contains(t, complaint.String(), "127.0.0.1:"+port+": another program listens there: stop it, or choose another port")

	// The printed settings contain the advertised address, not the one on which the servers listen.
	far, end := context.WithCancel(t.Context())
	out, in = io.Pipe()
	go func() {
		ended <- serve(far, []string{"--ports", "free", "--host", "0.0.0.0", "--advertise", "emulator"}, in, io.Discard)
	}()
	for name, value := range settings(t, out, 7) {
		if strings.Contains(value, ":") {
			require.Regexp(t, `//emulator:\d+`, value, name)
		}
	}
	end()
	require.Equal(t, 0, <-ended)

	cancel()
	require.Equal(t, 0, <-ended)
	require.FileExists(t, snapshot)
}

func TestCommandLineProblemsAreReportedAtOnce(t *testing.T) {
	garbage := filepath.Join(t.TempDir(), "garbage")
	require.NoError(t, os.WriteFile(garbage, []byte("no snapshot"), 0o600))
	for name, test := range map[string]struct {
		args []string
		want []string
	}{
		"a misspelt flag": {[]string{"--port", "free"}, []string{"-port", "--help lists the flags"}},
		"several": {[]string{"--ports", "mongo=1", "--latency", "-1s", "--config", "nowhere.json", "now"}, []string{
			`"now" is no flag`, `--ports "mongo=1": there is no server of that name`, "--latency -1s", "nowhere.json", "--help lists the flags",
		}},
		"a version that is not there": {[]string{"--ports", "free", "--mongodb-version", "3.6"}, []string{`--mongodb-version "3.6" is not one of 4.4, 5.0`}},
		"no snapshot":                 {[]string{"--ports", "free", "--snapshot", garbage}, []string{garbage, "remove the file to begin with nothing"}},
	} {
		var stderr bytes.Buffer
		require.Equal(t, 2, serve(t.Context(), test.args, io.Discard, &stderr), name)
		for _, want := range test.want {
			require.Contains(t, stderr.String(), want, name)
		}
	}
	var help bytes.Buffer
	require.Equal(t, 0, serve(t.Context(), []string{"--help"}, &help, io.Discard))
	require.Contains(t, help.String(), "-snapshot file")
}

// A client that trusts the written certificate reaches the administration by the printed name, on
// every requested port; the first port is printed.
func TestTLSOnRequest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan int, 1)
	ports := freePorts(t)
	go func() {
		ended <- serve(ctx, []string{"--ports", "tls=" + ports[0] + "," + ports[1], "--tls", file}, in, io.Discard)
	}()
	s := settings(t, out, 9)
	require.Equal(t, file, s["SERVICE_BUS_CA"])
	address, _, _ := strings.Cut(strings.TrimPrefix(s["SERVICE_BUS_TLS_CONNECTION_STRING"], "Endpoint=sb://"), ";")
	require.Equal(t, "localhost:"+ports[0], address)
	require.NotContains(t, s["SERVICE_BUS_TLS_CONNECTION_STRING"], "UseDevelopmentEmulator")
	pem, err := os.ReadFile(file)
	require.NoError(t, err)
	for name, trusted := range map[string]bool{"the CA": true, "nothing": false} {
		roots := x509.NewCertPool()
		if trusted {
			require.True(t, roots.AppendCertsFromPEM(pem))
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
		for _, port := range ports {
			resp, err := client.Get("https://localhost:" + port + "/health")
			if !trusted {
				require.ErrorContains(t, err, "certificate", name)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, 200, resp.StatusCode)
			require.NoError(t, resp.Body.Close())
		}
		client.CloseIdleConnections()
	}
	cancel()
	require.Zero(t, <-ended)
}

// freePorts returns two ports on which nothing listens.
func freePorts(t *testing.T) (ports [2]string) {
	t.Helper()
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer func() { require.NoError(t, l.Close()) }() // both are held until there are two, so that they differ
		_, ports[i], err = net.SplitHostPort(l.Addr().String())
		require.NoError(t, err)
	}
	return ports
}
