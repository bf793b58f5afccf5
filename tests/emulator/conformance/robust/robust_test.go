// Package robust holds no code: its test shows that the embedded servers withstand input that
// follows no protocol, and many connections.
package robust

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/emulator/blob"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

const (
	patience   = 30 * time.Second // for a server to give up on a stream that has ended
	mostMemory = 300 << 20        // bytes that may stay
)

// Each port gets streams that were mutated at random from a client's bytes, and connections that
// send nothing or an incomplete message. Afterwards, and while the connections exist, a client of
// that port works; the servers have not crashed, since they are in this process; and memory and
// goroutines are back to normal. ROBUST=2000 is the full run, ROBUST_SEED repeats one.
func TestTheServersSurviveMalformedInput(t *testing.T) {
	n, seed := number(t, "ROBUST", 200), uint64(number(t, "ROBUST_SEED", int(time.Now().Unix()%1e6)))
	t.Logf("seed %d", seed)
	stack := emulator.Start(t, emulator.Options{TLS: true, ServiceBus: &servicebus.Config{Queues: []servicebus.Queue{{Name: "work"}}}})
	ports := []port{
		{"MongoDB", address(t, stack.Endpoint(emulator.EnvMongo)), useMongo},
		{"Service Bus", address(t, stack.Endpoint(emulator.EnvServiceBus)), useServiceBus},
		{"administration", stack.Management(), useHTTP},
		{"Blob storage", address(t, stack.Endpoint(emulator.EnvBlob)), useBlob},
		{"Service Bus behind TLS", address(t, stack.Endpoint(emulator.EnvServiceBusTLS)), nil},
	}
	var sent [][]byte
	for _, p := range ports {
		if p.use != nil {
			sent = append(sent, recorded(t, p))
		}
	}
	for i, p := range ports {
		t.Run(p.name, func(t *testing.T) {
			own := sent[min(i, 1)] // behind TLS: what a client sends to Service Bus without it
			if i < len(sent) {
				own = sent[i]
			}
			before, goroutines := settled()
			start := time.Now()
			var work errgroup.Group
			work.SetLimit(50)
			for k := range n {
				r := rand.New(rand.NewPCG(seed, uint64(i*1_000_000+k)))
				stream := malformed(r, own, sent)
				ends := r.IntN(3) > 0
				work.Go(func() error { return p.bear(t.Context(), stream, ends) })
			}
			require.NoError(t, work.Wait())
			p.works(t)

			var open []net.Conn
			for k := range n {
				c, err := net.Dial("tcp", p.address)
				require.NoError(t, err)
				open = append(open, c)
				_, err = c.Write(own[:k%len(own)/(1+k%2)])
				require.NoError(t, err)
			}
			p.works(t)
			most, _ := settled()
			for _, c := range open {
				require.NoError(t, c.Close())
			}
			p.works(t)
			var after uint64
			var left int
			require.Eventually(t, func() bool {
				after, left = settled()
				return after < before+mostMemory && left < goroutines+50
			}, patience, 50*time.Millisecond)
			t.Logf("%d streams and %d connections in %s; heap %d MB before, %d MB with the connections, %d MB after; goroutines %d and %d",
				n, n, time.Since(start).Round(time.Millisecond), before>>20, most>>20, after>>20, goroutines, left)
		})
	}
}

// port is a server's.
type port struct {
	name, address string
	use           func(ctx context.Context, address string) error // with a real client; nil: with nothing
}

func (p port) works(t *testing.T) {
	t.Helper()
	if p.use == nil {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	require.NoError(t, p.use(ctx, p.address))
}

// bear sends a stream and waits until the server has ended the connection, which it does at the end
// of the stream at the latest if the client ends it.
func (p port) bear(ctx context.Context, stream []byte, ends bool) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", p.address)
	if err != nil {
		return fmt.Errorf("%s takes no connections any more: %w", p.name, err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	_, _ = c.Write(stream) // the server may have had enough before its end
	if !ends {
		return nil // and goes away in the middle
	}
	_ = c.(*net.TCPConn).CloseWrite()
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%s keeps a connection whose stream has ended: %q", p.name, stream[:min(len(stream), 64)])
	}
	return nil
}

// malformed mutates what a client sent.
func malformed(r *rand.Rand, own []byte, all [][]byte) []byte {
	b := slices.Clone(own)
	switch r.IntN(8) {
	case 0: // no protocol at all
		b = make([]byte, r.IntN(4096))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
	case 1: // another server's
		b = slices.Clone(all[r.IntN(len(all))])
	case 2: // it ends somewhere
		b = b[:r.IntN(len(b))]
	case 3: // an invalid size
		at := r.IntN(len(b) - 4)
		copy(b[at:], [][]byte{{0xff, 0xff, 0xff, 0xff}, {0x7f, 0xff, 0xff, 0xff}, {0, 0, 0, 0}, {0xff, 0xff, 0xff, 0x7f}}[r.IntN(4)])
	case 4: // a piece is missing, or there twice
		from := r.IntN(len(b))
		to := min(len(b), from+1+r.IntN(200))
		if r.IntN(2) == 0 {
			b = slices.Delete(b, from, to)
		} else {
			b = slices.Insert(b, from, slices.Clone(b[from:to])...)
		}
	case 5: // it does not end
		for len(b) < 1<<20 {
			b = append(b, b[r.IntN(len(b)):]...)
		}
	default:
		for range 1 + r.IntN(20) {
			b[r.IntN(len(b))] = byte(r.Uint32())
		}
	}
	return b
}

// recorded returns what a real client sends to a port, on the longest of its connections.
func recorded(t *testing.T, p port) []byte {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var mu sync.Mutex
	var longest []byte
	var open []net.Conn
	var all sync.WaitGroup
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, in)
			mu.Unlock()
			all.Go(func() {
				defer in.Close()
				out, err := net.Dial("tcp", p.address)
				if err != nil {
					return
				}
				all.Go(func() { _, _ = io.Copy(in, out); in.Close() })
				var sent strings.Builder
				_, _ = io.Copy(io.MultiWriter(out, &sent), in)
				out.Close()
				mu.Lock()
				defer mu.Unlock()
				if sent.Len() > len(longest) {
					longest = []byte(sent.String())
				}
			})
		}
	})
	require.NoError(t, p.use(t.Context(), l.Addr().String()))
	require.NoError(t, l.Close())
	mu.Lock()
	for _, c := range open { // clients of HTTP keep theirs
		_ = c.Close()
	}
	mu.Unlock()
	all.Wait()
	require.NotEmpty(t, longest)
	return longest
}

func useMongo(ctx context.Context, address string) error {
	c, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + address + "/?directConnection=true&serverMonitoringMode=poll"))
	if err != nil {
		return err
	}
	defer func() { _ = c.Disconnect(ctx) }()
	all := c.Database("db").Collection("c")
	if _, err := all.InsertOne(ctx, bson.D{{Key: "n", Value: 1}}); err != nil {
		return err
	}
	if _, err := all.UpdateMany(ctx, bson.D{{Key: "n", Value: 1}}, bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}}); err != nil {
		return err
	}
	var found []bson.D
	cursor, err := all.Find(ctx, bson.D{{Key: "n", Value: 2}}, options.Find().SetLimit(3))
	if err != nil {
		return err
	}
	return cursor.All(ctx, &found)
}

func useServiceBus(ctx context.Context, address string) error {
	c, err := azservicebus.NewClientFromConnectionString(servicebus.ConnectionString(address), nil)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(ctx) }()
	s, err := c.NewSender("work", nil)
	if err != nil {
		return err
	}
	if err := s.SendMessage(ctx, &azservicebus.Message{Body: []byte("x"), ApplicationProperties: map[string]any{"n": 1}}, nil); err != nil {
		return err
	}
	r, err := c.NewReceiverForQueue("work", nil)
	if err != nil {
		return err
	}
	ms, err := r.ReceiveMessages(ctx, 1, nil)
	if err != nil {
		return err
	}
	return r.CompleteMessage(ctx, ms[0], nil)
}

func useBlob(ctx context.Context, address string) error {
	c, err := azblob.NewClientFromConnectionString(blob.ConnectionString(address), nil)
	if err != nil {
		return err
	}
	name := strconv.FormatUint(rand.Uint64(), 36)
	if _, err := c.CreateContainer(ctx, name, nil); err != nil {
		return err
	}
	_, err = c.UploadBuffer(ctx, name, "b", []byte("content"), nil)
	return err
}

func useHTTP(ctx context.Context, address string) error {
	for _, path := range []string{"/health", "/work?api-version=2021-05"} {
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
		if err != nil {
			return err
		}
		a, err := http.DefaultClient.Do(q)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, a.Body)
		a.Body.Close()
		if path == "/health" && a.StatusCode != http.StatusOK {
			return fmt.Errorf("health: %s", a.Status)
		}
	}
	return nil
}

// address returns the host and port in a connection string or URI.
func address(t *testing.T, text string) string {
	t.Helper()
	_, rest, _ := strings.Cut(text, "://")
	if _, endpoint, is := strings.Cut(text, "BlobEndpoint=http://"); is {
		rest = endpoint
	}
	host, _, _ := strings.Cut(strings.NewReplacer(";", "/", "?", "/").Replace(rest), "/")
	_, _, err := net.SplitHostPort(host)
	require.NoError(t, err, text)
	return host
}

// settled returns the heap after a collection, and how many goroutines there are.
func settled() (heap uint64, goroutines int) {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc, runtime.NumGoroutine()
}

func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, name)
	return n
}
