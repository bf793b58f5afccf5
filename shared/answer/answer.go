// Package answer keeps what a command prints, and its exit code, in Blob storage. A command that
// runs as a Container Apps job needs that: the platform shows the output of a container only while
// the container runs.
//
// Guaranteed: the blob NAME.code is written last, so a reader that finds it finds the whole answer
// in NAME.out and NAME.err. While the command runs, those two hold what it has printed so far.
//
// Not guaranteed: that an answer is kept. Without storage the command does its work and returns its
// own exit code; the error is in the log.
package answer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/claim"
	"github.com/sluice-cdc/sluice/shared/settings"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

const (
	// EndMessage is the last record of a command's log. The script that reads the log instead of
	// the answer ends at it.
	EndMessage = "command ended"

	interval = 5 * time.Second
	// storeTimeout bounds each attempt to store the answer: the job must end before the platform
	// kills it.
	storeTimeout = 15 * time.Second
	// most bounds each of the two outputs. What is beyond is in the log only.
	most = 16 << 20
)

// config is where the answer goes.
type config struct {
	azure.Blob
	// Answer is CONTAINER/NAME. Empty: no answer is kept.
	Answer string `envconfig:"COMMAND_ANSWER"`
}

// Kept runs do and returns its exit code. If COMMAND_ANSWER names a container and a blob, what do
// prints and returns is kept there besides, in the account of BLOB_ACCOUNT_URL, and the log's last
// record is [EndMessage].
func Kept(ctx context.Context, program string, out, errOut io.Writer, do func(out, errOut io.Writer) int) int {
	var c config
	_ = settings.Load(&c) // the command's own settings are checked by the command
	if c.Answer == "" {
		return do(out, errOut)
	}
	log := telemetry.Logger(out, slog.LevelInfo, program, telemetry.Instance())
	store, name, err := c.open()
	if err != nil {
		log.Error("the answer is not kept", telemetry.KeyError, err)
	}
	k := &keeper{store: store, name: name}
	k.out.to, k.err.to = out, errOut
	progressing, stop := context.WithCancel(ctx)
	var progress sync.WaitGroup
	if store != nil {
		progress.Go(func() { k.progress(progressing) })
	}
	code := do(&k.out, &k.err)
	stop()
	progress.Wait()
	if store != nil {
		if err := k.end(context.WithoutCancel(ctx), code); err != nil {
			log.Error("the answer is not kept", telemetry.KeyError, err)
		}
	}
	log.Info(EndMessage, telemetry.KeyCode, code)
	return code
}

// open returns the container and the name of the answer in it.
func (c config) open() (*claim.Store, string, error) {
	container, name, found := strings.Cut(c.Answer, "/")
	if !found || name == "" {
		return nil, "", errors.New("COMMAND_ANSWER: must be CONTAINER/NAME")
	}
	if err := errors.Join(settings.ContainerName("COMMAND_ANSWER", container), c.Validate()); err != nil {
		return nil, "", err
	}
	client, err := c.Client(nil, nil)
	if err != nil {
		return nil, "", err
	}
	return claim.NewStore(client, container), name, nil
}

// keeper keeps one command's answer.
type keeper struct {
	store    *claim.Store
	name     string
	out, err output
}

// progress stores what was printed so far every [interval], until ctx ends.
func (k *keeper) progress(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = k.keep(ctx) // the end tries again and reports it
		}
	}
}

// end stores the whole output, and then the exit code.
func (k *keeper) end(ctx context.Context, code int) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if err := k.keep(ctx); err != nil {
		return err
	}
	if err := k.store.Keep(ctx, k.name+".code", "text/plain", []byte(strconv.Itoa(code)+"\n")); err != nil {
		return fmt.Errorf("keep the exit code: %w", err)
	}
	return nil
}

// keep stores those outputs that have grown, or were never stored.
func (k *keeper) keep(ctx context.Context) error {
	for suffix, o := range map[string]*output{".out": &k.out, ".err": &k.err} {
		text, grown := o.grown()
		if !grown {
			continue
		}
		if err := k.store.Keep(ctx, k.name+suffix, "text/plain; charset=utf-8", text); err != nil {
			return fmt.Errorf("keep the answer: %w", err)
		}
		o.stored(len(text))
	}
	return nil
}

// output passes on what is written and remembers it. It is safe for concurrent use.
type output struct {
	to io.Writer

	mu   sync.Mutex
	text []byte
	// kept is one more than the bytes that are stored: 0 means that the blob does not exist.
	kept int
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, p[:min(len(p), most-len(o.text))]...)
	return o.to.Write(p) //nolint:wrapcheck // this is the writer
}

// grown returns the text, and whether it differs from what is stored.
func (o *output) grown() ([]byte, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clip(o.text), len(o.text)+1 != o.kept
}

func (o *output) stored(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kept = n + 1
}
