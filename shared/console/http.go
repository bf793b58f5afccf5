package console

import (
	"context"
	"crypto/subtle"
	"embed"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sluice-cdc/sluice/shared/health"
)

//go:embed assets
var assets embed.FS

const (
	// maxForm bounds the body of an action, in bytes.
	maxForm = 64 << 10
	// actionTimeout bounds an action: a replay waits for the session of its aggregate.
	actionTimeout = 3 * time.Minute
)

// policy allows nothing but the console's own files.
const policy = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"

// Handler serves the console under the home's base.
func (c *Console) Handler() http.Handler {
	mux := http.NewServeMux()
	base := c.home.Base
	for _, p := range pages {
		if !p.shown(&c.home) {
			continue
		}
		pattern := "GET " + base + p.Path
		if p.Path == "/" {
			pattern += "{$}"
		}
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { c.servePage(w, r, p) })
	}
	if base != "" {
		mux.Handle("GET "+base, http.RedirectHandler(base+"/", http.StatusSeeOther))
	}
	mux.HandleFunc("GET "+base+"/events", c.serveEvents)
	mux.HandleFunc("GET "+base+"/status", c.serveStatus)
	for _, name := range []string{"console.css", "console.js", "icon.svg"} {
		mux.HandleFunc("GET "+base+"/"+name, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "no-cache")
			http.ServeFileFS(w, r, assets, "assets/"+name)
		})
	}
	if c.home.Replay != nil {
		mux.HandleFunc("POST "+base+"/parked/replay", c.action("replay", func(ctx context.Context, f url.Values) (string, error) {
			return c.home.Replay(ctx, f.Get("aggregate"))
		}))
	}
	if c.home.Drop != nil {
		mux.HandleFunc("POST "+base+"/parked/drop", c.action("drop", func(ctx context.Context, f url.Values) (string, error) {
			return c.home.Drop(ctx, f.Get("aggregate"), f.Get("message"))
		}))
	}
	if c.home.Harm != nil {
		mux.HandleFunc("POST "+base+"/harm", c.action("", func(ctx context.Context, f url.Values) (string, error) {
			return c.home.Harm(ctx, f.Get("kind"))
		}))
	}
	return c.guarded(mux)
}

// Patterns returns the handlers of a console that only reads, for a server that serves more. Run
// must be called as well.
func (c *Console) Patterns() map[string]http.HandlerFunc {
	serve := c.Handler().ServeHTTP
	return map[string]http.HandlerFunc{"GET " + c.home.Base: serve, "GET " + c.home.Base + "/": serve}
}

// guarded sets the headers of every answer, and refuses requests under a foreign name.
func (c *Console) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if !ours(r, c.home.Public) {
			http.Error(w, "the console answers under a loopback address or localhost only, such as 127.0.0.1; "+
				"forward its port to reach it from elsewhere", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ours reports whether the Host header of a request names this console: localhost or a loopback
// address and, if it is known, the port on which the request came. A public console also accepts
// other addresses, but no name: a name may be bound to any address by its owner.
func ours(r *http.Request, public bool) bool {
	host, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		host, port = r.Host, "80"
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	if public {
		return host == "localhost" || ip != nil
	}
	if host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return false
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return true
	}
	_, listens, err := net.SplitHostPort(local.String())
	return err == nil && port == listens
}

// action handles the form of an action: same origin, token, confirmation, and then do. Its answer
// is shown by the page to which the browser returns.
func (c *Console) action(word string, do func(context.Context, url.Values) (string, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !sameOrigin(r) {
			http.Error(w, "the form comes from another site", http.StatusForbidden)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		if err := r.ParseForm(); err != nil {
			http.Error(w, "the form cannot be read", http.StatusBadRequest)
			return
		}
		form := r.PostForm
		if subtle.ConstantTimeCompare([]byte(form.Get("token")), []byte(c.token)) != 1 {
			http.Error(w, "the page is older than this console: load it again and repeat the action", http.StatusForbidden)
			return
		}
		if word != "" && !strings.EqualFold(strings.TrimSpace(form.Get("confirm")), word) {
			http.Error(w, fmt.Sprintf("nothing was done: type %s to confirm", word), http.StatusBadRequest)
			return
		}
		// A browser that is closed must not interrupt an action half way.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), actionTimeout)
		defer cancel()
		did := strings.TrimSpace(word + " " + form.Get("kind") + form.Get("aggregate"))
		text, err := do(ctx, form)
		c.forget()
		c.answered(did, text, err)
		http.Redirect(w, r, c.home.Base+back(form.Get("back")), http.StatusSeeOther)
	}
}

// sameOrigin reports whether a browser sent the request from a page of this console.
func sameOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
		return false
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return r.Header.Get("Sec-Fetch-Site") == "same-origin"
	}
	u, err := url.Parse(origin)
	return err == nil && u.Scheme == "http" && u.Host == r.Host
}

// back returns a page of the console; anything else leads to the first one.
func back(path string) string {
	if pageAt(path) == nil {
		return "/"
	}
	return path
}

func (c *Console) serveStatus(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	view := c.view
	c.mu.Unlock()
	health.WriteJSON(w, http.StatusOK, view)
}

func (c *Console) servePage(w http.ResponseWriter, r *http.Request, p *page) {
	m, found := c.model(r.Context(), p, r.URL.Query().Get("aggregate"))
	text, err := m.page()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if !found {
		w.WriteHeader(http.StatusNotFound)
	}
	_, _ = w.Write([]byte(text)) // the reader may have gone
}
