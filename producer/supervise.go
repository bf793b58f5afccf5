package producer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/producer/internal/supervise"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// releaseTimeout bounds how long a parent tries to release what its child held: after that the takeover was as quick.
const releaseTimeout = 5 * time.Second

// Supervised does the work of a producer, [RunStreams], in a process of its own: the program runs itself once more, with the same
// arguments and environment, and the process that was started remains as its parent. When the child dies (of a panic, without memory,
// by SIGKILL) the parent releases its leases, so that another replica leads at once, and returns how it ended: an error with the method
// ExitCode. The options are handed on to the work, with what the parent must know.
func Supervised(ctx context.Context, configs []Config, o Options, work func(ctx context.Context, o Options) error) error {
	if runtime.GOOS == "windows" { // cannot hand files to a child
		return work(ctx, o)
	}
	if parent := supervise.Inherited(); parent != nil {
		go func() { // for as long as the process lives
			parent.Gone()
			os.Exit(commandline.ExitProblem)
		}()
		o.Held = parent.Hold
		return work(ctx, o)
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	return supervise.Run(ctx, append([]string{program}, os.Args[1:]...), func(ended *supervise.Ended, held map[string]string) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		for _, config := range configs {
			lease, ok := held[config.Stream]
			if !ok {
				continue
			}
			log := o.Logger.With(telemetry.KeyStream, config.Stream)
			log.Error("the producer's process ended and did not give its lease back; releasing it", telemetry.KeyError, ended)
			if err := config.release(ctx, lease, o); err != nil {
				log.Error("cannot release the lease; another replica takes over after TAKEOVER_AFTER", telemetry.KeyError, err)
			}
		}
	})
}

// release gives back a lease whose holder has died.
func (c *Config) release(ctx context.Context, lease string, o Options) error {
	credential := o.Credential
	if credential == nil && c.Blob.ConnectionString == "" {
		var err error
		if credential, err = azure.Credential(); err != nil {
			return err
		}
	}
	client, err := c.Blob.Client(credential, blobOptions(o.Blob))
	if err != nil {
		return err
	}
	blob := checkpoint.NewBlob(client.ServiceClient().NewContainerClient(c.Container), c.Stream)
	backoff := retry.Backoff{Initial: 50 * time.Millisecond, Max: time.Second}
	for {
		err := blob.Release(ctx, lease)
		if err == nil || errors.Is(err, checkpoint.ErrLeaseLost) {
			return nil
		}
		if backoff.Wait(ctx) != nil {
			return err
		}
	}
}
