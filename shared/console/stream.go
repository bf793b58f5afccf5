package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

const (
	// maxStreams bounds the open streams.
	maxStreams = 100
	// writeTimeout ends the stream of a browser that reads nothing.
	writeTimeout = 10 * time.Second
	// quiet is how long nothing is sent before a comment shows that the stream is alive.
	quiet = 10 * time.Second
)

// serveEvents sends the regions of a page that have changed, after each View: one event with a JSON
// object of HTML by region. The first event has all of them, so that a browser which reconnects
// has missed nothing.
func (c *Console) serveEvents(w http.ResponseWriter, r *http.Request) {
	p := pageAt(r.URL.Query().Get("page"))
	if p == nil || !p.shown(&c.home) {
		http.NotFound(w, r)
		return
	}
	if c.watched.Add(1) > maxStreams {
		c.watched.Add(-1)
		http.Error(w, "too many pages of this console are open; close some", http.StatusServiceUnavailable)
		return
	}
	defer c.watched.Add(-1)
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // a stream has no end; a recorder of tests has no deadline
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(text string) bool {
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // the same
		_, err := w.Write([]byte(text))
		return err == nil && control.Flush() == nil
	}
	if !send("retry: 1000\n\n") {
		return
	}
	aggregate := r.URL.Query().Get("aggregate")
	last, sent := map[string]string{}, time.Now()
	for {
		newer := c.next()
		changed := map[string]string{}
		for id, html := range c.regions(r.Context(), p, aggregate) {
			if last[id] != html {
				changed[id], last[id] = html, html
			}
		}
		switch {
		case len(changed) > 0:
			body, err := json.Marshal(changed)
			if err != nil || !send(fmt.Sprintf("data: %s\n\n", body)) {
				return
			}
			sent = time.Now()
		case time.Since(sent) > quiet:
			if !send(": nothing has changed\n\n") {
				return
			}
			sent = time.Now()
		}
		select {
		case <-r.Context().Done():
			return
		case <-c.ended:
			_ = send("event: end\ndata: \n\n") // the browser sees the end of the connection as well
			return
		case <-newer:
		}
	}
}
