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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Minute)
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "local"), append([]string{"--services", dir, "--console", "127.0.0.1:0", "--keep"}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 20 * time.Second // then it is killed: with --keep it stays until a second signal
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

// axe is where scripts/chromium.sh installs axe-core.
const axe = "axe/node_modules/axe-core/axe.min.js"

// violations runs the rules of WCAG 2.2 AA and the best practices of axe-core, and returns a line
// for each element that breaks one.
const violations = `axe.run(document, {
  runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"], resultTypes: ["violations"]
}).then((found) => found.violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + n.target + ": " + n.failureSummary)))`

// inspect checks a page in every size and colour: no violation of axe-core, and nothing wider than
// the window, for which axe-core has no rule.
func inspect(t *testing.T, p *browser.Page, name string) {
	t.Helper()
	rules, err := os.ReadFile(axe)
	if os.Getenv("CI") == "true" {
		require.NoError(t, err, "scripts/chromium.sh installs it")
	}
	p.Until("the page and its style are loaded", `document.readyState === "complete"`)
	for _, dark := range []bool{false, true} {
		p.Dark(dark)
		for _, width := range []int{360, 1280} {
			p.Size(width, 900)
			var wrong []string
			if err == nil {
				p.Do(string(rules)+";undefined", nil)
				p.Do(violations, &wrong)
			}
			require.Empty(t, wrong, "%s, dark %v, %d pixels", name, dark, width)
			var wide int
			p.Do("document.scrollingElement.scrollWidth", &wide)
			require.LessOrEqual(t, wide, width, "%s, dark %v", name, dark)
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
	p.Until("the next leader has the next epoch", `document.querySelector("tr.current td")?.textContent === "2"`)
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
	replay(p)

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
	p.Script(true) // for the rules; the page was loaded without it
	inspect(t, p, "no-script")

	p.Go(r.address)
	require.NoError(t, r.cmd.Process.Signal(syscall.SIGINT))
	p.Until("the verdict", `document.querySelector(".verdict.good h2")?.textContent.startsWith("EXACTLY RIGHT: ")`)
	inspect(t, p, "verdict")
	require.Empty(t, p.Complaints(), "the browser has nothing to complain of")
	r.until(t, `EXACTLY RIGHT`)
	r.until(t, `the console stays at `+r.address+` until Ctrl-C`)
	require.NoError(t, r.cmd.Process.Signal(syscall.SIGINT))
	p.Until("the page shows that the program has ended", `document.getElementById("state").textContent.includes("has ended")`)
	require.NoError(t, r.cmd.Wait(), "the exit code is that of the run")
}

// replay replays the aggregate whose page is open, by the keyboard alone. On a slow machine a
// projector may keep the session for longer than the command waits: then it is run again.
func replay(p *browser.Page) {
	for done := false; !done; {
		p.Until("the form is there", `document.getElementById("confirm-replay") && document.querySelector(".primary").disabled`)
		const answers = `(document.querySelector("[data-region=answers]")?.innerText ?? "")`
		var before string
		p.Do(answers, &before)
		p.Type("#confirm-replay", "replay")
		p.Press("Tab")
		p.Until("the button is reached", `document.activeElement.textContent === "Replay"`)
		p.Press("Enter")
		const none = `document.querySelector("[data-region=parked]")?.innerText.includes("No aggregate is parked")`
		p.Until("nothing is parked, or the command has given up", fmt.Sprintf(`%s || %s !== %q && /did not release it/.test(document.querySelector(".answer")?.innerText)`, none, answers, before))
		if p.Do("Boolean("+none+")", &done); !done {
			p.Click(`[data-region=parked] td a`)
		}
	}
	p.Until("the command has answered", `/events? applied; it is not parked/.test(document.querySelector(".answer")?.innerText)`)
}

func applied(p *browser.Page) (n int64) {
	p.Do(`(async () => (await (await fetch("/status")).json()).run.applied)()`, &n)
	return n
}

// serve serves a console until the test ends.
func serve(t *testing.T, c *console.Console) *httptest.Server {
	t.Helper()
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
	return server
}

// A stream that is cut is opened again, and shows what has happened meanwhile.
func TestTheStreamIsOpenedAgain(t *testing.T) {
	p := browser.Open(t)
	c := console.New(console.Home{Title: "test", View: func(context.Context) console.View {
		return console.View{Streams: []console.Stream{{Name: "shop.events", Leader: "a", Epoch: time.Now().Unix()}}}
	}})
	server := serve(t, c)
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
