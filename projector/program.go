package projector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector/internal/build"
	"github.com/sluice-cdc/sluice/projector/internal/remote"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/health"
	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/outage"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/settings"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// A projection may be a program of its own (PROJECTION_URL). Its declaration is read before
// anything else: the guards' place follows from it.

// readTimeout bounds one attempt to read a declaration.
const readTimeout = 3 * time.Second

// newProgram returns a client of the projection's program.
func newProgram(cfg Config, o Options) *remote.Client {
	return remote.New(remote.Options{URL: cfg.ProjectionURL, Timeout: cfg.ProjectionTimeout, Dial: o.ProjectionDial, Logger: o.Logger})
}

// awaitProgram waits until the projection's program has given its declaration, and answers probes
// meanwhile. It returns nil if ctx ends first. Errors: a [settings.Problems] if the declaration is
// that of another projection.
func awaitProgram(ctx context.Context, cfg Config, o Options) (*remote.Client, error) {
	name, err := cfg.programName()
	if err != nil {
		return nil, err
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	client := newProgram(cfg, o)
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	var serving sync.WaitGroup
	var unserved error
	if cfg.HTTPAddr != "" {
		probes := newStatus(cmp.Or(o.Instance, telemetry.Instance()), name).probes()
		probes.Ready = func() error { return errors.New("waiting for the projection's program at PROJECTION_URL") }
		serving.Go(func() {
			unserved = health.Serve(waiting, cfg.HTTPAddr, probes, o.Logger)
			stop()
		})
	}
	var refused *remote.RefusedError
	read := outage.New(o.Logger, "projection program").Until(waiting, readTimeout, func(ctx context.Context) error {
		d, err := client.Read(ctx, name)
		if errors.As(err, &refused) {
			return nil
		}
		if err == nil {
			client.Use(d)
		}
		return err
	})
	stop()
	serving.Wait()
	if refused != nil {
		return nil, settings.Problems{fmt.Errorf("PROJECTION: %w", refused)}
	}
	if !read || unserved != nil {
		client.Close()
		return nil, unserved
	}
	return client, nil
}

// programName validates the configuration, and returns the name that the program must declare.
func (c *Config) programName() (string, error) {
	if problems := c.problems(); len(problems) > 0 {
		return "", problems
	}
	name, _, err := projection.ParseVersion(c.Projection)
	return name, err
}

// startTimeout bounds how long a command that projects waits for a program that may have been
// started together with it, as in an operators' job.
const startTimeout = 15 * time.Second

// commandProgram returns a client of the projection's program for a command. If the program does
// not answer, the declaration is the one that the read-model database holds.
func commandProgram(ctx context.Context, cfg Config, o Options, projects bool) (*remote.Client, error) {
	name, err := cfg.programName()
	if err != nil {
		return nil, err
	}
	client := newProgram(cfg, o)
	read := func() (*remote.Declaration, error) {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		return client.Read(ctx, name)
	}
	d, err := read()
	for began := time.Now(); projects && err != nil && !isRefused(err) && time.Since(began) < startTimeout; d, err = read() {
		if retry.Sleep(ctx, readTimeout/10) != nil {
			break
		}
	}
	if isRefused(err) {
		return nil, settings.Problems{fmt.Errorf("PROJECTION: %w", err)}
	}
	if err != nil {
		stored, storedErr := storedDeclaration(ctx, cfg, o)
		if storedErr != nil {
			return nil, errors.Join(err, storedErr)
		}
		d = stored
	}
	client.Use(d)
	return client, nil
}

// storedDeclaration reads the declaration that the read-model database holds.
func storedDeclaration(ctx context.Context, cfg Config, o Options) (*remote.Declaration, error) {
	clientOptions := options.Client().ApplyURI(cfg.MongoURI).SetAppName(appName)
	if o.Mongo != nil {
		o.Mongo(clientOptions)
	}
	client, err := mongo.Connect(clientOptions)
	if err != nil {
		return nil, fmt.Errorf("open MongoDB client: %w", err)
	}
	defer func() { _ = mongodb.Disconnect(ctx, client, closeTimeout) }()
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	name, version, _ := projection.ParseVersion(cfg.Projection)
	if version > 1 {
		name = fmt.Sprintf("%s_v%d", name, version)
	}
	return remote.Stored(ctx, client.Database(cfg.Database), name)
}

// storeDeclaration stores the declaration of the projection's program, if it has one. Errors: a
// [*remote.RefusedError].
func (s *service) storeDeclaration(ctx context.Context) error {
	if s.remote == nil {
		return nil
	}
	return remote.Store(ctx, s.readModel(), s.chosen, s.remote.Declared())
}

// adoptDeclaration prepares the read model for another declaration of the running program.
func (s *service) adoptDeclaration(ctx context.Context, next *remote.Declaration) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	adopted, err := projection.Version(remote.Declared(next), projection.VersionOf(s.chosen))
	if err != nil {
		return err
	}
	err = remote.Store(ctx, s.readModel(), adopted, next)
	if refusal, refused := errors.AsType[*remote.RefusedError](err); refused {
		s.refuseDeclaration(refusal)
	}
	if err != nil {
		return err
	}
	return build.CreateCollections(ctx, s.readModel(), adopted)
}

// refuseDeclaration ends the projector.
func (s *service) refuseDeclaration(err error) {
	s.pipeline.Refuse(settings.Problems{fmt.Errorf("PROJECTION_URL: %w", err)})
}

func isRefused(err error) bool {
	_, refused := errors.AsType[*remote.RefusedError](err)
	return refused
}
