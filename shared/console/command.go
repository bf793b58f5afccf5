package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// peerTimeout bounds the request for the view of another console.
	peerTimeout = 3 * time.Second
	// maxPeer bounds such a view, in bytes.
	maxPeer = 8 << 20
	// share is the most of the time that reading the state may take: one part in so many.
	share = 10
)

// Options are those of the commands `producer console` and `projector console`.
type Options struct {
	// Listen is the address, on this machine alone.
	Listen string
	// With is the address of another console on this machine, whose View is shown as well; empty
	// adds none.
	With string
}

// Check returns what is wrong with the options.
func (o Options) Check() error {
	host, _, err := net.SplitHostPort(o.Listen)
	if err != nil || !loopback(host) {
		return fmt.Errorf("--listen %s: must be a loopback address with a port, such as 127.0.0.1:8090", o.Listen)
	}
	if o.With == "" {
		return nil
	}
	u, err := url.Parse(o.With)
	if err != nil || u.Scheme != "http" || !loopback(u.Hostname()) {
		return fmt.Errorf("--with %s: must be the address of a console on this machine, such as http://localhost:8091", o.With)
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Command serves the console of a home until ctx ends, and prints its address on out.
func Command(ctx context.Context, o Options, h Home, out io.Writer) error {
	listener, err := Listen(ctx, o.Listen)
	if err != nil {
		return err
	}
	h.View = paced(h.View)
	if o.With != "" {
		h.View = merged(h.View, strings.TrimSuffix(o.With, "/")+"/status")
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	fmt.Fprintf(out, "the console is at http://localhost:%s/ until Ctrl-C\n", port)
	return New(h).Serve(ctx, listener, slog.New(slog.DiscardHandler))
}

// paced returns the last View until ten times as long as reading it took has passed, so that a
// state which is expensive to read is read less often.
func paced(read func(context.Context) View) func(context.Context) View {
	var (
		mu   sync.Mutex // guards everything below
		last View
		next time.Time
	)
	return func(ctx context.Context) View {
		mu.Lock()
		defer mu.Unlock()
		if began := time.Now(); began.After(next) {
			last = read(ctx)
			last.At = time.Now()
			next = last.At.Add(share * last.At.Sub(began))
		}
		return last
	}
}

// merged returns a View together with what the console at an address shows.
func merged(read func(context.Context) View, address string) func(context.Context) View {
	client := &http.Client{
		Timeout:       peerTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return func(ctx context.Context) View {
		view := read(ctx)
		other, err := ask(ctx, client, address)
		if err != nil {
			view.Problems = append(slices.Clip(view.Problems), err.Error())
			return view
		}
		view.Streams = append(slices.Clip(view.Streams), other.Streams...)
		view.Projections = append(slices.Clip(view.Projections), other.Projections...)
		view.Problems = append(slices.Clip(view.Problems), other.Problems...)
		if view.Queue == nil {
			view.Queue = other.Queue
		}
		return view
	}
}

// ask returns the View of another console.
func ask(ctx context.Context, client *http.Client, address string) (v View, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return v, fmt.Errorf("ask the console at %s: %w", address, err)
	}
	response, err := client.Do(request)
	if err != nil {
		return v, fmt.Errorf("ask the other console: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return v, fmt.Errorf("ask the other console at %s: it answers %s", address, response.Status)
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxPeer)).Decode(&v); err != nil {
		return v, fmt.Errorf("read the view of the console at %s: %w", address, err)
	}
	return v, nil
}
