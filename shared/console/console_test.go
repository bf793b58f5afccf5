package console

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

// hostile is what a document may contain.
const hostile = `"><script>alert(1)</script><img src=x onerror=alert(2)>{{.Token}}` + "\u202e\x1b[2J"

func full(name string) View {
	return View{
		At: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC),
		Streams: []Stream{{
			Name: name, Leader: name, Epoch: 3, Published: new(int64(1234)), InFlight: new(int64(7)), Lanes: new(int64(16)), FenceMarginMS: new(int64(2100)),
			FenceAfterMS: new(int64(2500)), Position: name, LagMS: new(int64(4)), HeadroomSeconds: new(int64(3600)), State: name, Failure: name,
			Replicas: []Replica{{Name: name, Role: "leader"}, {Name: "b", Role: "standby", Error: name}},
			Snapshot: &Progress{State: name, Done: 5, Total: 10, Unit: "documents"},
		}},
		Queue: &Queue{Entity: name, Active: new(int64(2)), Sessions: new(int64(2)), DeadLettered: map[string]int64{name: 3}, Note: name},
		Projections: []Projection{{
			Name: name, Replicas: []string{name}, Applied: new(int64(1200)), SessionsHeld: new(int64(4)), Duplicates: new(int64(1)), Parked: new(int64(1)),
			P50MS: new(1.9), P99MS: new(5.3), LagMS: new(int64(2)), NewestAggregate: name, NewestPosition: name, NewestTime: name,
			Build: &Progress{State: name, Done: 5, Unit: "events"}, Views: map[string]string{name: name},
		}},
		Run: &Run{
			Inserted: 10, Total: 20, Applied: 9, Waiting: name, Events: []Event{{At: time.Second, Text: name}},
			Failovers: []Failover{{Kind: "lose-leader", Epoch: 2, PublishAfterMS: 4100}},
		},
		Problems: []string{name},
	}
}

func testHome(name string) Home {
	parked := Parked{
		Aggregate: name, Reason: name, Description: name, MessageID: "m1", Position: name, Applied: name, Session: name,
		Waiting: []Letter{{MessageID: "m1", Position: name, Version: 4, Reason: name}}, Overtaken: []Letter{{MessageID: "m0", Position: name, Reason: name}},
	}
	return Home{
		Title:  "test",
		View:   func(context.Context) View { return full(name) },
		Parked: func(context.Context) ([]Parked, error) { return []Parked{parked}, nil },
		Show:   func(context.Context, string) (Parked, error) { return parked, nil },
		Trace: func(context.Context, string) (Trace, error) {
			return Trace{Guard: name, Steps: []Step{{Version: 1, Position: name, State: "applied"}}}, nil
		},
		Replay: func(_ context.Context, aggregate string) (string, error) { return "replayed " + aggregate, nil },
		Drop:   func(_ context.Context, aggregate, message string) (string, error) { return "dropped " + message, nil },
		Harms:  []Harm{{"poison", name}, {"lose-leader", name}},
		Harm:   func(_ context.Context, kind string) (string, error) { return kind, nil },
	}
}

// read returns a console that has read one View.
func read(t *testing.T, h Home) *Console {
	t.Helper()
	c := New(h)
	c.read(t.Context())
	return c
}

func get(c *Console, path string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	return respond(c, httptest.NewRequest(http.MethodGet, path, http.NoBody), change...)
}

func post(c *Console, path string, form url.Values, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", "http://127.0.0.1:8090")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return respond(c, r, change...)
}

// respond returns the response to a request that is changed before it arrives.
func respond(c *Console, r *http.Request, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r.Host = "127.0.0.1:8090"
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	c.Handler().ServeHTTP(w, r)
	return w
}

var everyPage = []string{"/", "/leadership", "/parked", "/parked/aggregate?aggregate=a", "/streams", "/builds", "/trace?aggregate=a"}

func TestEveryPageAllowsNothingButItsOwnFiles(t *testing.T) {
	c := read(t, testHome("plain"))
	for _, path := range append(everyPage, "/console.css", "/console.js", "/icon.svg", "/status", "/nothing") {
		w := get(c, path)
		require.Equal(t, policy, w.Header().Get("Content-Security-Policy"), path)
		require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"), path)
		require.Equal(t, "DENY", w.Header().Get("X-Frame-Options"), path)
		if path == "/nothing" {
			require.Equal(t, http.StatusNotFound, w.Code)
			continue
		}
		require.Equal(t, http.StatusOK, w.Code, path)
		if strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
			require.NotRegexp(t, `template \S+: `, w.Body.String(), "no template fails: %s", path)
			require.NotRegexp(t, `(?i)\sstyle=|\son[a-z]+=|<style|javascript:|https?://`, w.Body.String(), "the policy refuses it: %s", path)
		}
	}
}

// What stands in documents is text, in pages and in the stream.
func TestG6HostileTextIsOnlyText(t *testing.T) {
	c := read(t, testHome(hostile))
	carried := regexp.MustCompile(`<input type="hidden"[^>]*>|href="[^"]*"`) // what a browser sends back, and does not show
	check := func(path, body string) {
		body = carried.ReplaceAllString(body, "")
		require.NotContains(t, body, "<script>alert", path)
		require.NotContains(t, body, "<img src=x", path)
		require.NotContains(t, body, "\u202e", path)
		require.NotContains(t, body, "\x1b", path)
		require.Contains(t, body, "&lt;script&gt;", "%s shows it", path)
	}
	for _, path := range everyPage {
		check(path, get(c, path).Body.String())
		p := pageAt(strings.Split(path, "?")[0])
		for name, region := range c.regions(t.Context(), p, hostile) {
			if strings.Contains(region, "script") {
				check(path+" "+name, region)
			}
		}
	}
	c.answered(hostile, hostile, errors.New(hostile))
	check("answers", get(c, "/streams").Body.String())
}

func TestAForeignHostIsRefused(t *testing.T) {
	c := read(t, testHome("plain"))
	for host, want := range map[string]int{
		"127.0.0.1:8090": http.StatusOK, "localhost:8090": http.StatusOK, "[::1]:8090": http.StatusOK, "127.0.0.1": http.StatusOK,
		"evil.example:8090": http.StatusMisdirectedRequest, "127.0.0.1.evil.example": http.StatusMisdirectedRequest,
		"192.168.0.7:8090": http.StatusMisdirectedRequest, "": http.StatusMisdirectedRequest, "localhost.evil.example:8090": http.StatusMisdirectedRequest,
	} {
		w := get(c, "/status", func(r *http.Request) { r.Host = host })
		require.Equal(t, want, w.Code, "%q", host)
		if want != http.StatusOK {
			require.NotContains(t, w.Body.String(), "plain")
		}
	}
	public := testHome("plain")
	public.Public = true
	c = read(t, public)
	for host, want := range map[string]int{
		"10.0.0.4:8080": http.StatusOK, "localhost:8080": http.StatusOK, "evil.example:8080": http.StatusMisdirectedRequest,
	} {
		require.Equal(t, want, get(c, "/status", func(r *http.Request) { r.Host = host }).Code, host)
	}
}

func TestAnActionNeedsOriginTokenAndConfirmation(t *testing.T) {
	done := 0
	h := testHome("plain")
	h.Replay = func(context.Context, string) (string, error) { done++; return "applied 3 events", nil }
	c := read(t, h)
	form := func(change ...string) url.Values {
		f := url.Values{"token": {c.token}, "confirm": {"replay"}, "aggregate": {"a"}, "back": {"/parked"}}
		for i := 0; i < len(change); i += 2 {
			f.Set(change[i], change[i+1])
		}
		return f
	}
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) {
			if r.Header.Del(name); value != "" {
				r.Header.Set(name, value)
			}
		}
	}
	for name, w := range map[string]*httptest.ResponseRecorder{
		"no token":        post(c, "/parked/replay", form("token", "")),
		"a wrong token":   post(c, "/parked/replay", form("token", strings.Repeat("A", len(c.token)))),
		"no confirmation": post(c, "/parked/replay", form("confirm", "")),
		"another word":    post(c, "/parked/replay", form("confirm", "yes")),
		"another site":    post(c, "/parked/replay", form(), header("Origin", "http://evil.example")),
		"another port":    post(c, "/parked/replay", form(), header("Origin", "http://127.0.0.1:1")),
		"a null origin":   post(c, "/parked/replay", form(), header("Origin", "null")),
		"cross-site":      post(c, "/parked/replay", form(), header("Sec-Fetch-Site", "cross-site")),
		"same-site":       post(c, "/parked/replay", form(), header("Sec-Fetch-Site", "same-site")),
		"no header of a browser": post(c, "/parked/replay", form(), header("Origin", ""),
			header("Sec-Fetch-Site", "")),
		"a foreign host": post(c, "/parked/replay", form(), func(r *http.Request) { r.Host = "evil.example:8090" }),
		"GET":            get(c, "/parked/replay?"+form().Encode()),
	} {
		require.GreaterOrEqual(t, w.Code, 400, name)
	}
	require.Zero(t, done, "nothing was done")

	w := post(c, "/parked/replay", form())
	require.Equal(t, http.StatusSeeOther, w.Code, w.Body)
	require.Equal(t, "/parked", w.Header().Get("Location"))
	require.Equal(t, 1, done)
	require.Contains(t, get(c, "/parked").Body.String(), "applied 3 events")
	require.Equal(t, "/", post(c, "/parked/replay", form("back", "//evil.example")).Header().Get("Location"))
}

func TestAConsoleThatOnlyReadsTakesNoPost(t *testing.T) {
	h := testHome("plain")
	h.Replay, h.Drop, h.Harm = nil, nil, nil
	c := read(t, h)
	for _, path := range []string{"/parked/replay", "/parked/drop", "/harm", "/"} {
		w := post(c, path, url.Values{"token": {c.token}, "confirm": {"replay"}, "aggregate": {"a"}, "kind": {"poison"}})
		require.GreaterOrEqual(t, w.Code, 400, path)
	}
	for _, path := range everyPage {
		require.NotContains(t, get(c, path).Body.String(), `method="post"`, path)
	}
}

// The page without script, the stream and /status show the same View.
func TestPageStreamAndStatusAgree(t *testing.T) {
	c := read(t, testHome("plain"))
	var status View
	require.NoError(t, json.Unmarshal(get(c, "/status").Body.Bytes(), &status))
	require.Equal(t, full("plain"), status)
	page := get(c, "/").Body.String()
	require.Contains(t, page, "<dd data-epoch>3</dd>")
	require.Contains(t, page, "<dt>published</dt><dd>1,234</dd>")
	require.Contains(t, page, "2.1 s")
	for id, region := range c.regions(t.Context(), pageAt("/"), "") {
		require.Contains(t, page, region, id)
	}
}

func TestTheStreamSendsWhatChanged(t *testing.T) {
	epoch := int64(3)
	h := testHome("plain")
	h.View = func(context.Context) View {
		v := full("plain")
		v.Streams[0].Epoch = epoch
		return v
	}
	c := read(t, h)
	server := httptest.NewServer(c.Handler())
	defer server.Close()
	response, err := server.Client().Get(server.URL + "/events?page=/")
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, "text/event-stream", response.Header.Get("Content-Type"))
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	next := func() (event map[string]string) {
		for lines.Scan() {
			if data, is := strings.CutPrefix(lines.Text(), "data: "); is {
				require.NoError(t, json.Unmarshal([]byte(data), &event))
				return event
			}
		}
		t.Fatal("the stream ended")
		return nil
	}
	first := next()
	require.Contains(t, first["flow"], "<dd data-epoch>3</dd>")
	epoch = 4
	c.read(t.Context())
	second := next()
	require.Contains(t, second["flow"], "<dd data-epoch>4</dd>")
	require.NotContains(t, second, "events", "it has not changed")
	c.End()
	for lines.Scan() {
		if lines.Text() == "event: end" {
			return
		}
	}
	t.Fatal("the stream did not say that it ends")
}

func TestStreamsAreBounded(t *testing.T) {
	c := read(t, testHome("plain"))
	c.watched.Store(maxStreams)
	require.Equal(t, http.StatusServiceUnavailable, get(c, "/events?page=/").Code)
	require.Equal(t, int64(maxStreams), c.watched.Load())
	require.Equal(t, http.StatusNotFound, get(c, "/events?page=/nowhere").Code)
}

func TestActionsNeedALoopbackAddress(t *testing.T) {
	for _, addr := range []string{":8090", "0.0.0.0:8090", "192.168.1.2:80", "example.com:80"} {
		_, err := Listen(t.Context(), addr)
		require.ErrorIs(t, err, ErrNotLoopback, addr)
	}
	for _, addr := range []string{"127.0.0.1:0", "localhost:0"} {
		listener, err := Listen(t.Context(), addr)
		require.NoError(t, err)
		require.NoError(t, listener.Close())
	}
}

// The port of the Host header is that of the listener.
func TestAnotherPortsNameIsRefused(t *testing.T) {
	c := read(t, testHome("plain"))
	listener, err := Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- c.Serve(ctx, listener, slog.New(slog.DiscardHandler)) }()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	for host, want := range map[string]int{"localhost:" + port: http.StatusOK, "localhost:1": http.StatusMisdirectedRequest, "localhost": http.StatusMisdirectedRequest} {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+listener.Addr().String()+"/status", http.NoBody)
		require.NoError(t, err)
		request.Host = host
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
		require.Equal(t, want, response.StatusCode, host)
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	require.NoError(t, <-served)
}

func TestTermsAndFailoversAreShown(t *testing.T) {
	var h history
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	see := func(leader string, epoch int64) {
		at = at.Add(time.Second)
		h.add(at, View{At: at, Streams: []Stream{{Name: "s", Leader: leader, Epoch: epoch}}})
	}
	see("a", 1)
	see("a", 1)
	see("", 1)
	see("", 1)
	see("b", 2)
	require.Len(t, h.terms, 2)
	require.Equal(t, "within 3 s", h.terms[0].Failover)
	require.Equal(t, "its leader no longer leads", h.terms[0].Ended)
	require.True(t, h.terms[1].Current)
	see("a", 3)
	require.False(t, h.terms[1].Current)
	require.Len(t, h.terms, 3)
	for i := range int64(2 * maxTerms) {
		see("x", 4+i)
	}
	require.Len(t, h.terms, maxTerms)
}

// Ten minutes are kept, whatever time passes.
func TestTheHistoryHasABound(t *testing.T) {
	var h history
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range int64(3 * kept) {
		h.add(at.Add(time.Duration(i)*time.Second), View{Projections: []Projection{{Applied: new(50 * i)}}})
	}
	values := h.rates(func(s sample) int64 { return s.applied })
	require.Len(t, values, kept)
	require.InDelta(t, 50, values[kept-1], 0.001)
	require.Len(t, h.series(func(s sample) int64 { return s.lag }), kept)
	drawn := string(sparkline("applied a second", "", values))
	require.Contains(t, drawn, "now 50, at most 50")
	require.Less(t, len(drawn), 8000)
}

func TestAConsoleWithoutAViewAnswers(t *testing.T) {
	c := New(Home{Title: "test", View: func(context.Context) View { return View{} }})
	for _, path := range []string{"/", "/leadership", "/parked", "/streams", "/builds"} {
		w := get(c, path)
		require.Equal(t, http.StatusOK, w.Code, path)
		require.NotRegexp(t, `template \S+: `, w.Body.String(), path)
	}
	require.Equal(t, http.StatusNotFound, get(c, "/trace?aggregate=a").Code)
}

// The script stays readable in one sitting.
func TestTheScriptIsShort(t *testing.T) {
	text, err := os.ReadFile("assets/console.js")
	require.NoError(t, err)
	require.LessOrEqual(t, strings.Count(string(text), "\n"), 200)
}

// The two sides of a pipeline, each with credentials of its own, are shown together.
func TestTheViewOfAnotherConsoleIsAdded(t *testing.T) {
	other := httptest.NewServer(read(t, Home{Title: "producer", View: func(context.Context) View {
		return View{Streams: []Stream{{Name: "shop.events", Leader: "a"}}}
	}}).Handler())
	defer other.Close()
	own := func(context.Context) View { return View{Projections: []Projection{{Name: "timeline"}}} }
	view := merged(own, other.URL+"/status")(t.Context())
	require.Empty(t, view.Problems)
	require.Equal(t, "shop.events", view.Streams[0].Name)
	require.Equal(t, "timeline", view.Projections[0].Name)
	other.Close()
	view = merged(own, other.URL+"/status")(t.Context())
	require.Len(t, view.Problems, 1, "the other console has ended")
	require.Equal(t, "timeline", view.Projections[0].Name)
}

func TestTheOptionsOfACommandStayOnThisMachine(t *testing.T) {
	require.NoError(t, Options{Listen: "127.0.0.1:8090", With: "http://localhost:8091"}.Check())
	for _, o := range []Options{
		{Listen: ":8090"},
		{Listen: "0.0.0.0:8090"},
		{Listen: "8090"},
		{Listen: "127.0.0.1:8090", With: "http://example.com"},
		{Listen: "127.0.0.1:8090", With: "https://localhost:1"},
		{Listen: "127.0.0.1:8090", With: "localhost:8091"},
	} {
		require.Error(t, o.Check(), "%v", o)
	}
}

// A state that takes long to read is read less often.
func TestReadingTakesATenthOfTheTime(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		reads := 0
		view := paced(func(context.Context) View {
			reads++
			time.Sleep(2 * time.Second) // what reading takes
			return View{}
		})
		for range 66 {
			view(t.Context())
			time.Sleep(time.Second) // the console's pace
		}
		require.Equal(t, 4, reads)
	})
}

// The console of a replica is part of its server, under its own path, and takes no POST.
func TestAConsoleUnderAPath(t *testing.T) {
	h := testHome("plain")
	h.Base, h.Public, h.Replay, h.Drop, h.Harm = "/ui", true, nil, nil, nil
	c := read(t, h)
	mux := http.NewServeMux()
	for pattern, handler := range c.Patterns() {
		mux.HandleFunc(pattern, handler)
	}
	for path, want := range map[string]int{"/ui": http.StatusSeeOther, "/ui/": http.StatusOK, "/ui/parked": http.StatusOK, "/ui/console.js": http.StatusOK, "/ui/nothing": http.StatusNotFound, "/": http.StatusNotFound} {
		r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
		r.Host = "10.0.0.1:8080"
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		require.Equal(t, want, w.Code, path)
		for _, found := range regexp.MustCompile(`(?:href|src|action|data-stream)="(/[^"]*)"`).FindAllStringSubmatch(w.Body.String(), -1) {
			require.True(t, strings.HasPrefix(found[1], "/ui/"), found[1])
		}
	}
	r := httptest.NewRequest(http.MethodPost, "/ui/harm", http.NoBody)
	r.Host = "10.0.0.1:8080"
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
}

// A console that runs for long keeps what it has after ten minutes, and no more.
func TestMemoryDoesNotGrow(t *testing.T) {
	epoch := int64(0)
	h := testHome("plain")
	h.View = func(context.Context) View {
		epoch++
		v := full("shop.events")
		v.Streams[0].Epoch, v.Run.Failovers = epoch, nil
		return v
	}
	c := New(h)
	fill := func() uint64 {
		for range kept + 100 {
			c.read(t.Context())
			c.answered("replay", "done", nil)
			c.regions(t.Context(), pageAt("/"), "")
		}
		_, _ = lookUp(t.Context(), c, strconv.FormatInt(epoch, 10), func(context.Context) (string, error) { return "x", nil })
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	first := fill()
	require.Less(t, fill(), first+32<<10, "everything was full before")
	runtime.KeepAlive(c) // else it is freed before the last measurement
}

// A build and a snapshot show how fast they go, and when they will have finished.
func TestABuildShowsItsRateAndTheTimeToGo(t *testing.T) {
	var h history
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	build := &Progress{Unit: "events", Total: 4000}
	rows := &Progress{Unit: "documents"}
	require.Equal(t, "–", h.pace(build))
	for i := range int64(20) {
		build.Done, rows.Done = 100*i, 7
		h.add(at.Add(time.Duration(i)*time.Second), View{Projections: []Projection{{Build: build}}, Streams: []Stream{{Snapshot: rows}}})
	}
	require.Equal(t, "100 a second, about 21 s to go", h.pace(build))
	require.Equal(t, "0 a second", h.pace(rows))
	build.Done = 0 // it begins again
	h.add(at.Add(20*time.Second), View{Projections: []Projection{{Build: build}}})
	build.Done = 50
	h.add(at.Add(21*time.Second), View{Projections: []Projection{{Build: build}}})
	require.Equal(t, "50 a second, about 79 s to go", h.pace(build))
}
