package control_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/control"
)

// request returns the text of an answer, and its status.
func request(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode, string(text)
}

func TestEveryListedFaultCanBeInjected(t *testing.T) {
	server := httptest.NewServer(control.Handler(emulator.Start(t, emulator.Options{})))
	defer server.Close()
	status, list := request(t, "GET", server.URL+"/", "")
	require.Equal(t, 200, status)
	harms := regexp.MustCompile(`(?m)^POST (\S+)(?: with (.*))?$`).FindAllStringSubmatch(list, -1)
	require.Len(t, harms, 11)
	for _, h := range harms {
		status, text := request(t, "POST", server.URL+h[1], h[2])
		require.Less(t, status, 300, "%s: %s", h[1], text)
	}
	status, _ = request(t, "DELETE", server.URL+"/servicebus/faults", "")
	require.Equal(t, 204, status)
}

func TestAFaultIsInjected(t *testing.T) {
	s := emulator.Start(t, emulator.Options{})
	server := httptest.NewServer(control.Handler(s))
	defer server.Close()
	_, blob, _ := strings.Cut(s.Endpoint(emulator.EnvBlob), "BlobEndpoint=")
	blob = strings.TrimSuffix(blob, ";") + "/container"
	before, _ := request(t, "GET", blob, "")
	require.Equal(t, 401, before) // it is not signed
	status, _ := request(t, "POST", server.URL+"/blob/fail?status=503&for=1h", "")
	require.Equal(t, 204, status)
	during, _ := request(t, "GET", blob, "")
	require.Equal(t, 503, during)
}

func TestInvalidFaultRequestsAreExplained(t *testing.T) {
	server := httptest.NewServer(control.Handler(emulator.Start(t, emulator.Options{})))
	defer server.Close()
	for path, want := range map[string]string{
		"/blob/fail?status=503&fro=5s":          `"fro" is no parameter of blob/fail: write POST /blob/fail?status=503&for=5s` + "\n" + `for="" is no duration such as 5s`,
		"/mongodb/step-down?for=ten":            `for="ten" is no duration such as 5s: write POST /mongodb/step-down?for=10s`,
		"/mongodb/lose-replies?n=1":             "command is missing: write POST /mongodb/lose-replies?command=insert&n=1",
		"/servicebus/refuse-sends?entity=x&n=":  `n="" is no number from 0`,
		"/servicebus/refuse-sends?entity=x&n=1": "refuse sends",
	} {
		status, text := request(t, "POST", server.URL+path, "")
		require.Equal(t, 400, status, path)
		require.Contains(t, text, want, path)
	}
	status, text := request(t, "POST", server.URL+"/servicebus/faults", `{"Sent":{}}`)
	require.Equal(t, 400, status)
	require.Contains(t, text, `unknown field "Sent"`)
	status, text = request(t, "POST", server.URL+"/servicebus/explode", "")
	require.Equal(t, 404, status)
	require.Contains(t, text, "POST /servicebus/drop-connections")
}
