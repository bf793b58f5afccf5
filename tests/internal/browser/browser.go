// Package browser drives a headless Chromium from Debian over its DevTools protocol.
//
// Messages are JSON, each with a zero byte behind it, over two pipes of the process: there is no
// port that others could reach, and no library is needed.
package browser

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/retry"
)

// patience bounds one step of a test.
const patience = 2 * time.Minute

// Page is one tab of a browser.
type Page struct {
	t       *testing.T
	conn    *connection
	session string
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
	conn, err := start(t, program)
	require.NoError(t, err)
	var created struct{ TargetID string }
	conn.call(t, "", "Target.createTarget", map[string]any{"url": "about:blank"}, &created)
	var attached struct{ SessionID string }
	conn.call(t, "", "Target.attachToTarget", map[string]any{"targetId": created.TargetID, "flatten": true}, &attached)
	p := &Page{t: t, conn: conn, session: attached.SessionID}
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		p.call(domain+".enable", nil, nil)
	}
	return p
}

func (p *Page) call(method string, params, result any) {
	p.t.Helper()
	p.conn.call(p.t, p.session, method, params, result)
}

// Go opens an address and waits until it is loaded.
func (p *Page) Go(address string) {
	p.t.Helper()
	p.call("Page.navigate", map[string]any{"url": address}, nil)
	p.Until("the page is loaded: "+address, `document.readyState === "complete" && location.href === `+quoted(address))
}

// Size sets the size of the window, and Dark the colour scheme that the reader prefers.
func (p *Page) Size(width, height int) {
	p.t.Helper()
	p.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
}

// Dark sets the colour scheme that the reader prefers.
func (p *Page) Dark(dark bool) {
	p.t.Helper()
	value := map[bool]string{true: "dark", false: "light"}[dark]
	p.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": value}}}, nil)
}

// Script switches the page's own scripts on or off, for pages that are opened from now on.
func (p *Page) Script(on bool) {
	p.t.Helper()
	p.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": !on}, nil)
}

// Do runs an expression in the page and decodes its value into result, which may be nil.
func (p *Page) Do(expression string, result any) {
	p.t.Helper()
	require.NoError(p.t, p.try(expression, patience, result), expression)
}

func (p *Page) try(expression string, within time.Duration, result any) error {
	ctx, cancel := context.WithTimeout(p.t.Context(), within)
	defer cancel()
	var answer struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	err := p.conn.ask(ctx, p.session, "Runtime.evaluate",
		map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true, "userGesture": true}, &answer)
	switch {
	case err != nil:
		return err
	case answer.ExceptionDetails != nil:
		return errors.New(answer.ExceptionDetails.Text + " " + answer.ExceptionDetails.Exception.Description)
	case result == nil:
		return nil
	}
	if err := json.Unmarshal(answer.Result.Value, result); err != nil {
		return fmt.Errorf("read %s: %w", answer.Result.Value, err)
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
	p.Do("document.querySelector("+quoted(selector)+").focus()", nil)
	p.call("Input.insertText", map[string]any{"text": text}, nil)
}

// Press presses a key, such as Tab or Enter.
func (p *Page) Press(key string) {
	p.t.Helper()
	code := map[string]int{"Tab": 9, "Enter": 13}[key]
	text := map[string]string{"Enter": "\r"}[key]
	for _, kind := range []string{"keyDown", "keyUp"} {
		p.call("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text}, nil)
	}
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
	var height int
	p.Do("Math.ceil(document.documentElement.getBoundingClientRect().height)", &height)
	var width int
	p.Do("document.documentElement.clientWidth", &width)
	var answer struct{ Data string }
	p.call("Page.captureScreenshot", map[string]any{
		"format": "png", "captureBeyondViewport": true,
		"clip": map[string]any{"x": 0, "y": 0, "width": width, "height": height, "scale": 1},
	}, &answer)
	image, err := base64.StdEncoding.DecodeString(answer.Data)
	require.NoError(p.t, err)
	return image
}

// Complaints returns what the browser has logged as a warning or an error so far, and forgets it.
func (p *Page) Complaints() []string {
	p.conn.mu.Lock()
	defer p.conn.mu.Unlock()
	complaints := p.conn.complaints
	p.conn.complaints = nil
	return complaints
}

func quoted(text string) string {
	encoded, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string can be encoded
	}
	return string(encoded)
}

// connection is the connection to a browser.
type connection struct {
	to *os.File

	mu         sync.Mutex // guards everything below
	last       int64
	waiting    map[int64]chan message
	complaints []string
	ended      bool
}

type message struct {
	ID     int64           `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

func start(t *testing.T, program string) (*connection, error) {
	theirs, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	from, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, program, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
		"--no-first-run", "--disable-background-networking", "--user-data-dir="+t.TempDir())
	cmd.ExtraFiles = []*os.File{theirs, out} // its files 3 and 4
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	_, _ = theirs.Close(), out.Close() // the process has them
	c := &connection{to: to, waiting: map[int64]chan message{}}
	var reading sync.WaitGroup
	reading.Go(func() { c.read(from) })
	t.Cleanup(func() {
		_ = c.ask(context.WithoutCancel(t.Context()), "", "Browser.close", nil, nil) // it ends its processes
		stop := time.AfterFunc(5*time.Second, cancel)
		_ = cmd.Wait() // how it ends does not matter
		stop.Stop()
		cancel()
		_ = to.Close()
		reading.Wait()
		_ = from.Close()
	})
	return c, nil
}

// read passes on what the browser sends until it ends.
func (c *connection) read(from *os.File) {
	messages := bufio.NewReaderSize(from, 1<<20)
	for {
		text, err := messages.ReadBytes(0)
		var m message
		if err == nil && json.Unmarshal(text[:len(text)-1], &m) == nil {
			c.take(m)
		}
		if err != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.ended = true
			for _, waiting := range c.waiting {
				close(waiting)
			}
			return
		}
	}
}

func (c *connection) take(m message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch m.Method {
	case "":
		if waiting := c.waiting[m.ID]; waiting != nil {
			waiting <- m // there is room for one
			delete(c.waiting, m.ID)
		}
	case "Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled":
		for _, quiet := range []string{`"level":"verbose"`, `"level":"info"`} {
			if strings.Contains(string(m.Params), quiet) {
				return
			}
		}
		c.complaints = append(c.complaints, string(m.Params))
	}
}

func (c *connection) call(t *testing.T, session, method string, params, result any) {
	t.Helper()
	require.NoError(t, c.ask(t.Context(), session, method, params, result), method)
}

// ask sends a request and decodes its answer into result, which may be nil.
func (c *connection) ask(ctx context.Context, session, method string, params, result any) error {
	answered := make(chan message, 1)
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return errors.New("the browser has ended")
	}
	c.last++
	id := c.last
	c.waiting[id] = answered
	request := map[string]any{"id": id, "method": method}
	if params != nil {
		request["params"] = params
	}
	if session != "" {
		request["sessionId"] = session
	}
	text, err := json.Marshal(request)
	if err == nil {
		_, err = c.to.Write(append(text, 0))
	}
	c.mu.Unlock()
	if err != nil {
		return fmt.Errorf("ask the browser: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-ctx.Done():
		return fmt.Errorf("ask the browser %s: %w", method, ctx.Err())
	case m, ok := <-answered:
		switch {
		case !ok:
			return errors.New("the browser has ended")
		case m.Error != nil:
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		case result == nil:
			return nil
		}
		return json.Unmarshal(m.Result, result)
	}
}
