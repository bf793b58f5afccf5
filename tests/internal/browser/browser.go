// Package browser drives a headless Chromium with chromedp, over two pipes of the process: there is
// no port that others could reach.
package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/retry"
)

// patience bounds one step of a test.
const patience = 2 * time.Minute

// Page is one tab of a browser.
type Page struct {
	t   *testing.T
	ctx context.Context //nolint:containedctx // chromedp keeps the tab in it

	mu         sync.Mutex
	complaints []string // guarded by mu
}

// Open starts a browser with one empty page, and ends it with the test. The test is skipped if
// there is no Chromium, unless CI is true.
func Open(t *testing.T) *Page {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		program, err = exec.LookPath("google-chrome")
	}
	if err != nil && os.Getenv("CI") != "true" {
		t.Skip("chromium is not installed; scripts/chromium.sh installs it")
	}
	require.NoError(t, err, "scripts/chromium.sh installs it")
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox,
		chromedp.Flag("disable-gpu", true), chromedp.Flag("hide-scrollbars", true))
	allocator, end := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	p := &Page{t: t}
	var closeTab context.CancelFunc
	p.ctx, closeTab = chromedp.NewContext(allocator)
	messages := chromedp.Console(p.ctx) // starts the browser
	var reading sync.WaitGroup
	reading.Go(func() {
		for m, err := range messages {
			if err == nil && (m.Source == "" || m.Type != chromedp.ConsoleDebug && m.Type != chromedp.ConsoleInfo) {
				p.mu.Lock()
				p.complaints = append(p.complaints, m.String())
				p.mu.Unlock()
			}
		}
	})
	t.Cleanup(func() {
		closeTab()
		end()
		reading.Wait()
	})
	return p
}

// run runs an action within the time of one step, and returns its result.
func run[T any](p *Page, action chromedp.Action[T]) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	result, err := chromedp.Run(ctx, action)
	require.NoError(p.t, err)
	return result
}

// Go opens an address and waits until it is loaded.
func (p *Page) Go(address string) {
	p.t.Helper()
	run(p, chromedp.Navigate(address))
	p.Until("the page is loaded: "+address, `document.readyState === "complete" && location.href === `+quoted(address))
}

// Size sets the size of the window.
func (p *Page) Size(width, height int) {
	p.t.Helper()
	run(p, chromedp.EmulateViewport(int64(width), int64(height)))
}

// Dark sets the colour scheme that the reader prefers.
func (p *Page) Dark(dark bool) {
	p.t.Helper()
	value := map[bool]string{true: "dark", false: "light"}[dark]
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: value}},
	})
	require.NoError(p.t, err)
}

// Script switches the page's own scripts on or off, for pages that are opened from now on.
func (p *Page) Script(on bool) {
	p.t.Helper()
	_, err := chromedp.Call(p.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})
	require.NoError(p.t, err)
}

// Do runs an expression in the page and decodes its value into result, which may be nil.
func (p *Page) Do(expression string, result any) {
	p.t.Helper()
	require.NoError(p.t, p.try(expression, patience, result), expression)
}

func (p *Page) try(expression string, within time.Duration, result any) error {
	ctx, cancel := context.WithTimeout(p.ctx, within)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[[]byte](expression, chromedp.EvalAsValue, chromedp.EvalAwaitPromise,
		func(params *runtime.EvaluateParams) { params.UserGesture = new(true) }))
	if err != nil || result == nil {
		return err
	}
	if err := json.Unmarshal(text, result); err != nil {
		return fmt.Errorf("read %s: %w", text, err)
	}
	return nil
}

// Until waits until an expression is true in the page. An error of it, as while another page is
// loaded, counts as false. A browser may never answer what it is asked at that moment, so it is
// asked again.
func (p *Page) Until(what, expression string) {
	p.t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); {
		is := false
		if err = p.try("Boolean("+expression+")", patience/20, &is); is {
			return
		}
		require.NoError(p.t, retry.Sleep(p.t.Context(), 50*time.Millisecond))
	}
	var text string
	if err == nil {
		err = p.try("document.body.innerText", patience/20, &text)
	}
	require.Fail(p.t, fmt.Sprintf("%s: not in %s: %s", what, patience, expression), "%v %s", err, text)
}

// Type writes into a field as a person does, and Click clicks an element. Both take a selector.
func (p *Page) Type(selector, text string) {
	p.t.Helper()
	run(p, chromedp.SendKeys(chromedp.CSS(selector), text))
}

// Press presses a key, Tab or Enter.
func (p *Page) Press(key string) {
	p.t.Helper()
	run(p, chromedp.KeyEvent(map[string]string{"Tab": "\t", "Enter": "\r"}[key]))
}

// Click clicks an element, as soon as it is there.
func (p *Page) Click(selector string) {
	p.t.Helper()
	p.Until("there is "+selector, "document.querySelector("+quoted(selector)+")")
	p.Do("document.querySelector("+quoted(selector)+").click()", nil)
}

// Screenshot returns the whole page as a PNG.
func (p *Page) Screenshot() []byte {
	p.t.Helper()
	return run(p, chromedp.FullScreenshot(100))
}

// Complaints returns what the page or the browser has logged so far, without what is mere
// information of the browser, and forgets it.
func (p *Page) Complaints() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	complaints := p.complaints
	p.complaints = nil
	return complaints
}

func quoted(text string) string {
	encoded, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string can be encoded
	}
	return string(encoded)
}
