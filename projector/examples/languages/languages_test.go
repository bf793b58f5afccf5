package languages_test

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/internal/remote"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/projector/projection/memory"
	"github.com/sluice-cdc/sluice/projector/projection/projectiontest"
)

// languages are the examples that run here. built is what scripts/programs.sh makes.
var languages = map[string]struct {
	built   string
	command []string
	source  string
}{
	"python":     {"", []string{"python3", "python/totals.py"}, "python/totals.py"},
	"typescript": {"typescript/build/totals.js", []string{"node", "typescript/build/totals.js"}, "typescript/totals.ts"},
	"java":       {"java/build/json.jar", []string{"java", "-cp", "java/build/json.jar", "java/Totals.java"}, "java/Totals.java"},
}

// start runs an example until the test ends, and returns its URL.
func start(t *testing.T, language string) string {
	t.Helper()
	example := languages[language]
	if _, err := exec.LookPath(example.command[0]); err != nil {
		t.Skipf("%s is not installed", example.command[0])
	}
	if _, err := os.Stat(example.built); example.built != "" && err != nil {
		t.Skipf("%s is not there: scripts/programs.sh makes it", example.built)
	}
	var free net.ListenConfig
	listener, err := free.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)

	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	program := exec.CommandContext(ctx, example.command[0], example.command[1:]...)
	program.Env = append(os.Environ(), "PORT="+port)
	var output bytes.Buffer
	program.Stdout, program.Stderr = &output, &output
	require.NoError(t, program.Start())
	t.Cleanup(func() {
		stop()
		_ = program.Wait() // it was killed
		if t.Failed() {
			t.Log(output.String())
		}
	})
	url := "http://" + address
	client := remote.New(remote.Options{URL: url})
	defer client.Close()
	deadline := time.Now().Add(time.Minute) // a Java compiler runs first
	for {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		_, err := client.First(attempt)
		cancel()
		if err == nil {
			return url
		}
		require.True(t, time.Now().Before(deadline), "%s does not answer: %v", language, err)
		time.Sleep(20 * time.Millisecond)
	}
}

// Each example passes `projector check`, and makes the documents of the one in Go, byte by byte.
func TestLanguages(t *testing.T) {
	for language, example := range languages {
		t.Run(language, func(t *testing.T) {
			source, err := os.ReadFile(example.source)
			require.NoError(t, err)
			require.LessOrEqual(t, bytes.Count(source, []byte("\n")), 40)
			url := start(t, language)
			var out bytes.Buffer
			code := projector.Execute(t.Context(), []string{"check", "--url", url, "--events", "testdata/events.jsonl", "--expect", "testdata/expect.json"},
				projector.LoadConfig, projector.Options{}, &out, &out, nil)
			require.Zero(t, code, out.String())
			require.Contains(t, out.String(), "7 events are projected as they must be")

			client := remote.New(remote.Options{URL: url})
			defer client.Close()
			_, err = client.First(t.Context())
			require.NoError(t, err)
			require.Equal(t, documents(t, CustomerTotals{}), documents(t, client.Projection()))
			want, _ := projection.Collections(CustomerTotals{})
			got, _ := projection.Collections(client.Projection())
			require.Equal(t, "data.customerId", got[0].KeyedBy)
			require.Len(t, got, len(want))
			projectiontest.CheckPermanent(t, client.Projection(), projectiontest.Insert("order-1", `{"type": "OrderPaid", "data": {"customerId": "ann"}}`))
		})
	}
}

// documents returns the BSON of what a projection makes of some events.
func documents(t *testing.T, p projection.Projection) (all []byte) {
	t.Helper()
	var store memory.Store
	for _, customer := range []string{"ann", "bob", "zoë \"q\" \\ 世", "$x.y"} {
		for _, kind := range []string{"OrderPlaced", "OrderPaid", "OrderPlaced", "OrderRefunded", "OrderShipped"} {
			for _, total := range []any{int32(0), int32(-7), int64(1 << 33)} {
				writes, err := p.Project(projectiontest.Insert("order-1", bson.D{
					{Key: "type", Value: kind}, {Key: "data", Value: bson.D{{Key: "customerId", Value: customer}, {Key: "totalCents", Value: total}}},
				}))
				require.NoError(t, err)
				for _, w := range writes {
					require.NoError(t, store.Apply(w))
				}
			}
		}
		document, ok := store.Get("customer_totals", customer)
		require.True(t, ok)
		raw, err := bson.Marshal(document)
		require.NoError(t, err)
		all = append(all, raw...)
	}
	return all
}

// The example that no test runs is as short, and is marked so.
func TestTheExampleInDotnetIsMarked(t *testing.T) {
	source, err := os.ReadFile(filepath.Join("dotnet", "Program.cs"))
	require.NoError(t, err)
	require.LessOrEqual(t, strings.Count(string(source), "\n"), 40)
	require.Contains(t, string(source), "do not run this program")
}

// Documents that differ from the expected ones are found by check.
func TestCheckComparesDocuments(t *testing.T) {
	url := start(t, "python")
	var out bytes.Buffer
	code := projector.Execute(t.Context(), []string{"check", "--url", url, "--events", "testdata/events.jsonl", "--expect", "testdata/wrong.json"},
		projector.LoadConfig, projector.Options{}, &out, &out, nil)
	require.Equal(t, 1, code, out.String())
	require.Contains(t, out.String(), "paidCents")
}

// The projection in Go that the others are compared with is the one that users see.
func TestTheExampleInGoIsTheOneThatIsShown(t *testing.T) {
	shown, err := os.ReadFile("../customer-totals/totals.go")
	require.NoError(t, err)
	compared, err := os.ReadFile("go_test.go")
	require.NoError(t, err)
	require.Equal(t, strings.Replace(string(shown), "package main", "package languages_test", 1), string(compared))
}
