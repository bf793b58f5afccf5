package producer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/producer/internal/supervise"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// releaseTimeout bounds the attempts of a parent to release the leases of its child. After that,
// the takeover by a standby is as fast.
const releaseTimeout = 5 * time.Second

// supervised runs work in a child process: the program starts itself again, with the same arguments
// and environment, and the original process stays as the parent. If the child dies (a panic, out of
// memory, SIGKILL), the parent releases its leases, so that another replica leads at once, and
// returns an error with the method ExitCode that describes how it ended. Work receives opts, with
// the means to report its leases.
func supervised(ctx context.Context, cfgs []Config, opts Options, work func(ctx context.Context, opts Options) error) error {
	if runtime.GOOS == "windows" { // files cannot be passed to a child
		return work(ctx, opts)
	}
	if parent := supervise.Inherited(); parent != nil {
		go func() { // runs until the process ends
			parent.Gone()
			os.Exit(commandline.ExitProblem)
		}()
		opts.reportLease = parent.Hold
		return work(ctx, opts)
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	return supervise.Run(ctx, append([]string{program}, os.Args[1:]...), func(ended *supervise.Ended, held map[string]string) {
		releaseAll(context.WithoutCancel(ctx), cfgs, held, ended, opts)
	})
}

// releaseAll releases the leases of a process that has ended, by stream, all at the same time.
func releaseAll(ctx context.Context, cfgs []Config, held map[string]string, ended error, opts Options) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	credential := sync.OnceValues(azure.Credential) // one for all streams, because it caches its token
	if opts.Credential != nil {
		credential = func() (azcore.TokenCredential, error) { return opts.Credential, nil }
	}
	var releases sync.WaitGroup
	defer releases.Wait()
	for _, cfg := range cfgs {
		lease, ok := held[cfg.Stream]
		if !ok {
			continue
		}
		releases.Go(func() {
			log := opts.Logger.With(telemetry.KeyStream, cfg.Stream)
			log.Error("the producer's process ended without releasing its lease; releasing it", telemetry.KeyError, ended)
			if err := cfg.release(ctx, lease, credential, opts); err != nil {
				log.Error("cannot release the lease; another replica takes over after TAKEOVER_AFTER", telemetry.KeyError, err)
			}
		})
	}
}

// release releases a lease whose holder has died. credential is called only if the settings have no
// connection string.
func (c *Config) release(ctx context.Context, lease string, credential func() (azcore.TokenCredential, error), opts Options) error {
	if c.checkpointsInBlob() && c.Blob.ConnectionString == "" {
		var err error
		if opts.Credential, err = credential(); err != nil {
			return err
		}
	}
	var stores storeSet
	defer stores.close(context.WithoutCancel(ctx))
	point, err := stores.checkpoint(*c, opts)
	if err != nil {
		return err
	}
	backoff := retry.Backoff{Initial: 50 * time.Millisecond, Max: time.Second}
	for {
		err := point.Release(ctx, lease)
		if err == nil || errors.Is(err, checkpoint.ErrLeaseLost) {
			return nil
		}
		if backoff.Wait(ctx) != nil {
			return err
		}
	}
}
