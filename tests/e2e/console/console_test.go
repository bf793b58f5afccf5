package console

import (
	"bufio"
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/console"
	"github.com/sluice-cdc/sluice/tests/internal/browser"
	"github.com/sluice-cdc/sluice/tests/internal/child"
)

// pictures is the variable with a folder for the pictures of every page.
const pictures = "CONSOLE_PICTURES"

// run is a local run with a console.
type run struct {
	cmd     *exec.Cmd
	address string // with a slash at its end
	lines   *bufio.Scanner
}

// start starts a run, and returns when its console is served.
func start(t *testing.T, args ...string) *run {
	t.Helper()
	if testing.Short() {
		t.Skip("it builds and starts programs")
	}
	dir := t.TempDir()
	for _, of := range []string{"tests/cmd/local", "producer/cmd/producer", "projector/cmd/projector"} {
		require.NoError(t, child.BuildProgram(t.Context(), of, filepath.Join(dir, filepath.Base(of))))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Minute)
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "local"), append([]string{"--services", dir, "--console", "127.0.0.1:0", "--keep"}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // a test that cares has waited
	})
	r := &run{cmd: cmd, lines: bufio.NewScanner(out)}
	found := r.until(t, `the console is at (http://\S+/)`)
	r.address = found[1]
	return r
}

// until reads the output up to a line.
func (r *run) until(t *testing.T, pattern string) []string {
	t.Helper()
	var seen strings.Builder
	for r.lines.Scan() {
		fmt.Fprintln(&seen, r.lines.Text())
		if found := regexp.MustCompile(pattern).FindStringSubmatch(r.lines.Text()); found != nil {
			return found
		}
	}
	t.Fatalf("the run ends before %q:\n%s", pattern, seen.String())
	return nil
}

// picture keeps a picture of the page, if pictures are wanted.
func picture(t *testing.T, p *browser.Page, name string) {
	t.Helper()
	if dir := os.Getenv(pictures); dir != "" {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".png"), p.Screenshot(), 0o644))
	}
}

// sound checks what every page owes its readers: names, labels, contrast, no overflow.
const sound = `(() => {
  const wrong = [];
  const seen = (e) => e.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && e.getClientRects().length > 0;
  if (document.documentElement.lang !== "en") wrong.push("no language");
  if (document.querySelectorAll("h1").length !== 1) wrong.push("not one heading");
  for (const landmark of ["header", "nav", "main", "footer"]) if (!document.querySelector(landmark)) wrong.push("no " + landmark);
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  ids.filter((id, i) => ids.indexOf(id) !== i).forEach((id) => wrong.push("id twice: " + id));
  document.querySelectorAll("a, button, summary").forEach((e) => {
    if (!(e.textContent.trim() || e.getAttribute("aria-label"))) wrong.push("no name: " + e.outerHTML);
    const box = e.getBoundingClientRect();
    if (seen(e) && e.matches("button, nav a") && (box.height < 24 || box.width < 24)) wrong.push("too small: " + e.outerHTML);
  });
  document.querySelectorAll("input:not([type=hidden])").forEach((e) => { if (!e.labels.length) wrong.push("no label: " + e.outerHTML); });
  document.querySelectorAll("svg:not([aria-hidden])").forEach((e) => { if (!e.getAttribute("aria-label")) wrong.push("no name: svg"); });
  document.querySelectorAll("[aria-labelledby]").forEach((e) => { if (!document.getElementById(e.getAttribute("aria-labelledby"))) wrong.push("no label: " + e.outerHTML); });
  document.querySelectorAll("*").forEach((e) => {
    if (["auto", "scroll"].includes(getComputedStyle(e).overflowX) && e.scrollWidth > e.clientWidth && e.tabIndex < 0) wrong.push("cannot be scrolled by a key: " + e.className);
  });
  if (document.scrollingElement.scrollWidth > window.innerWidth) wrong.push("wider than the window: " + document.scrollingElement.scrollWidth);
  const parse = (c) => { const m = c.match(/[\d.]+/g).map(Number); return m.length > 3 ? m : [...m, 1]; };
  const light = ([r, g, b]) => [r, g, b].map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] > 0.99) return c; } return [255, 255, 255, 1]; };
  document.querySelectorAll("body *").forEach((e) => {
    if (!seen(e) || e.disabled || !e.getClientRects().length || e.closest("svg, .skip") || ![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) return;
    const style = getComputedStyle(e), [a, b] = [light(parse(style.color)), light(ground(e))].sort((x, y) => y - x);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if ((a + 0.05) / (b + 0.05) < (large ? 3 : 4.5)) wrong.push("contrast " + ((a + 0.05) / (b + 0.05)).toFixed(2) + ": " + e.textContent.trim().slice(0, 40));
  });
  return wrong;
})()`

// inspect checks a page in every size and colour.
func inspect(t *testing.T, p *browser.Page, name string) {
	t.Helper()
	p.Until("the page and its style are loaded", `document.readyState === "complete"`)
	for _, dark := range []bool{false, true} {
		p.Dark(dark)
		for _, width := range []int{360, 1280} {
			p.Size(width, 900)
			var wrong []string
			p.Do(sound, &wrong)
			require.Empty(t, wrong, "%s, dark %v, %d pixels", name, dark, width)
			picture(t, p, fmt.Sprintf("%s-%d-%s", name, width, map[bool]string{true: "dark", false: "light"}[dark]))
		}
	}
	p.Dark(false)
	p.Size(1280, 900)
}

// A person who has only a browser takes the leader away, makes an event poison, replays it, and
// reads that all is right.
func TestARunIsWatchedAndHarmedInABrowser(t *testing.T) {
	p := browser.Open(t)
	p.Size(1280, 900)
	r := start(t, "--events", "0", "--rate", "60", "--projectors", "2") // until it is stopped, however slow the machine is
	p.Go(r.address)
	p.Until("a replica leads", `document.querySelector("[data-epoch]")?.textContent === "1"`)
	p.Until("the stream is open", `document.getElementById("state").textContent === "live"`)

	// What is shown is what /status has.
	p.Until("the page shows the View of /status", `(async () => {
		const v = await (await fetch("/status")).json(), s = v.streams[0], text = document.querySelector("[data-region=flow]").innerText;
		const n = (x) => x.toLocaleString("en-US");
		return s.leader && text.includes(s.leader) && text.includes("published\n" + n(s.published)) && text.includes("applied\n" + n(v.projections[0].applied));
	})()`)
	p.Until("events flow", `parseInt(document.querySelector(".arrow b").textContent) > 30`)
	inspect(t, p, "flow")

	p.Click(`nav a[href="/leadership"]`)
	p.Until("the page is there", `document.title.startsWith("Leadership")`)
	p.Click(`button[value="lose-leader"]`)
	began := time.Now()
	p.Until("the next leader has the next epoch", `document.querySelector("tr.current td")?.textContent === "2"`)
	require.Less(t, time.Since(began), 20*time.Second)
	p.Until("the failover is measured", `/lose-leader\s+[\d.]+ s until the next leader published/.test(document.querySelector("tbody").innerText)`)
	inspect(t, p, "leadership")

	p.Click(`nav a[href="/parked"]`)
	p.Click(`button[value="poison"]`)
	p.Until("its aggregate is parked", `document.querySelector("[data-region=parked] td a")`)
	inspect(t, p, "parked")
	before := applied(p)
	p.Until("the others go on", fmt.Sprintf(`(async () => (await (await fetch("/status")).json()).run.applied > %d + 60)()`, before))
	p.Go(r.address)
	p.Until("the page shows it", `document.querySelector("[data-region=flow] .tag.bad") && document.querySelector(".harms")`)
	p.Do(`document.querySelector("[data-region=answers]").remove(), document.querySelector(".harms").closest("section").remove()`, nil)
	picture(t, p, "docs-console-flow")
	p.Go(r.address + "parked")
	p.Click(`[data-region=parked] td a`)
	p.Until("its events are in order", `document.querySelector("[data-region=aggregate] tr.current")?.innerText.includes("in the way")`)
	inspect(t, p, "aggregate")
	p.Do(`document.querySelector("[data-region=answers]").remove()`, nil)
	picture(t, p, "docs-console-parked")
	p.Click(`[data-region=aggregate] a[href^="/trace"]`)
	p.Until("the event is parked", `document.querySelector("[data-region=trace] .tag.bad")?.textContent === "parked"`)
	inspect(t, p, "trace")
	p.Do("history.back()", nil)
	p.Until("the form is there", `document.getElementById("confirm-replay") && document.querySelector(".primary").disabled`)

	// By the keyboard alone.
	p.Type("#confirm-replay", "replay")
	p.Press("Tab")
	p.Until("the button is reached", `document.activeElement.textContent === "Replay"`)
	p.Press("Enter")
	p.Until("the command has answered", `/events? applied; it is not parked/.test(document.querySelector(".answer")?.innerText)`)
	p.Until("nothing is parked", `document.querySelector("[data-region=parked]").innerText.includes("No aggregate is parked")`)

	for _, name := range []string{"streams", "builds"} {
		p.Go(r.address + name)
		p.Until("the stream is open", `document.getElementById("state").textContent === "live"`)
		inspect(t, p, name)
	}

	p.Script(false)
	p.Go(r.address)
	var text string
	p.Do("document.body.innerText", &text)
	require.Contains(t, text, "Without script this page shows one moment")
	require.Regexp(t, `epoch\s+2`, text)
	require.NotContains(t, text, "Pause")
	inspect(t, p, "no-script")
	p.Script(true)

	p.Go(r.address)
	require.NoError(t, r.cmd.Process.Signal(syscall.SIGINT))
	p.Until("the verdict", `document.querySelector(".verdict.good h2")?.textContent.startsWith("EXACTLY RIGHT: ")`)
	inspect(t, p, "verdict")
	require.Empty(t, p.Complaints(), "the browser has nothing to complain of")
	r.until(t, `EXACTLY RIGHT`)
	r.until(t, `the console stays at `+r.address+` until Ctrl-C`)
	require.NoError(t, r.cmd.Process.Signal(syscall.SIGINT))
	p.Until("the page says that the program has ended", `document.getElementById("state").textContent.includes("has ended")`)
	require.NoError(t, r.cmd.Wait(), "the exit code is that of the run")
}

func applied(p *browser.Page) (n int64) {
	p.Do(`(async () => (await (await fetch("/status")).json()).run.applied)()`, &n)
	return n
}

// A stream that is cut is opened again, and shows what has happened meanwhile.
func TestTheStreamIsOpenedAgain(t *testing.T) {
	p := browser.Open(t)
	c := console.New(console.Home{Title: "test", View: func(context.Context) console.View {
		return console.View{Streams: []console.Stream{{Name: "shop.events", Leader: "a", Epoch: time.Now().Unix()}}}
	}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	server := httptest.NewServer(c.Handler())
	t.Cleanup(func() {
		c.End()
		server.CloseClientConnections()
		server.Close()
		cancel()
		<-done
	})
	p.Go(server.URL + "/")
	p.Until("the stream is open", `document.getElementById("state").textContent === "live"`)
	p.Do(`window.first = document.querySelector("[data-epoch]").textContent; window.lost = false;
		new MutationObserver(() => { window.lost ||= document.getElementById("state").textContent.includes("lost") }).observe(document.getElementById("state"), { childList: true })`, nil)
	server.CloseClientConnections()
	p.Until("it was lost, and is live again", `window.lost && document.getElementById("state").textContent === "live" && document.querySelector("[data-epoch]").textContent !== window.first`)
	p.Do(`Object.defineProperty(document, "hidden", { value: true, writable: true }), document.dispatchEvent(new Event("visibilitychange"))`, nil)
	p.Until("a page that is not visible has no stream", `document.getElementById("state").textContent === "not visible"`)
	p.Do(`document.hidden = false, document.dispatchEvent(new Event("visibilitychange"))`, nil)
	p.Until("it is live again", `document.getElementById("state").textContent === "live"`)
	p.Click("#pause")
	p.Until("it is paused", `document.getElementById("state").textContent === "paused"`)
	p.Click("#pause")
	p.Until("it goes on", `document.getElementById("state").textContent === "live"`)
}
