package producer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/settings"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// LoadStreams reads the settings of every stream from the environment: of one, or of those that STREAMS names. A stream's
// own variables, such as ORDERS_MONGODB_COLLECTION for orders, override those that all streams share. The error is a
// [settings.Problems] with every problem found, each by the name of its variable.
func LoadStreams() ([]Config, error) {
	var process Config
	_ = settings.Load(&process)                                                                                                  // what is wrong with it is found below, stream by stream
	known := settings.Known{Spec: process, OfProcess: ofProcess, Foreign: append(process.IgnoreVariables, "SOURCE_MONGODB_URI")} // the projector's
	if len(process.Streams) == 0 {
		c, err := loadStream("")
		problems, _ := errors.AsType[settings.Problems](err)
		if problems = append(problems, known.Misspelt(os.Environ())...); len(problems) > 0 {
			err = problems
		}
		return []Config{c}, err
	}
	var configs []Config
	var problems settings.Problems
	names := map[string]string{} // in STREAMS, by the full one
	report := func(problem error) {
		if !slices.ContainsFunc(problems, func(p error) bool { return p.Error() == problem.Error() }) {
			problems = append(problems, problem) // a shared setting is reported once
		}
	}
	for i, name := range process.Streams {
		if slices.Contains(process.Streams[:i], name) {
			report(fmt.Errorf("STREAMS: names %s twice", name))
			continue
		}
		for _, problem := range checkName(name) {
			report(problem)
		}
		c, err := loadStream(prefix(name))
		if of, ok := errors.AsType[settings.Problems](err); ok {
			for _, problem := range of {
				report(problem)
			}
		}
		if other, taken := names[c.Stream]; taken {
			report(fmt.Errorf("STREAMS: %s and %s are both the stream %q: watch two collections, or set %sSTREAM_NAME",
				other, name, c.Stream, prefix(name)))
		}
		names[c.Stream] = name
		configs = append(configs, c)
		known.Prefixes = append(known.Prefixes, prefix(name))
	}
	problems = append(problems, known.Misspelt(os.Environ())...)
	if len(problems) > 0 {
		return configs, problems
	}
	return configs, nil
}

func loadStream(prefix string) (Config, error) {
	var c Config
	err := settings.LoadWithPrefix(&c, prefix)
	if c.Stream == "" {
		c.Stream = c.Database + "." + c.Collection
	}
	return c, err
}

// prefix is what the variables of a stream begin with.
func prefix(stream string) string { return strings.ToUpper(strings.ReplaceAll(stream, "-", "_")) + "_" }

// ofProcess are settings that streams cannot have for themselves.
var ofProcess = []string{"STREAMS", "HTTP_ADDR", "LOG_LEVEL", "LOG_FORMAT", "STATUS_INTERVAL", "IGNORE_VARIABLES"}

var streamName = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)

// checkName finds what is wrong with a stream's name.
func checkName(stream string) (problems []error) {
	if !streamName.MatchString(stream) {
		return []error{fmt.Errorf("STREAMS: %q is no name for a stream: use lower-case letters, digits and single hyphens, and begin with a letter", stream)}
	}
	known := settings.Names(Config{})
	for _, variable := range known {
		own := prefix(stream) + variable
		if _, set := os.LookupEnv(own); set && slices.Contains(ofProcess, variable) {
			problems = append(problems, fmt.Errorf("%s: is a setting of the whole process: set %s instead", own, variable))
		}
		if slices.Contains(known, own) {
			problems = append(problems, fmt.Errorf("STREAMS: %s cannot be a stream's name: %s is a setting of every stream", stream, own))
		}
	}
	return problems
}

// choose finds the stream that a command is about, by its name in STREAMS or its full one; without a name the only one.
// The error says which there are.
func choose(configs []Config, name string) (Config, error) {
	var known []string
	for i, c := range configs {
		short := c.Stream
		if len(c.Streams) == len(configs) {
			short = c.Streams[i]
		}
		if name == short || name == c.Stream || name == "" && len(configs) == 1 {
			return c, nil
		}
		known = append(known, short)
	}
	if name == "" {
		return Config{}, fmt.Errorf("%w: there are several streams: say which with --stream %s", commandline.ErrUsage, strings.Join(known, "|"))
	}
	return Config{}, fmt.Errorf("%w: there is no stream %q; there is %s", commandline.ErrUsage, name, strings.Join(known, ", "))
}

// The times between a stream's failure and its restart, much as a platform restarts a process that ends.
const (
	restartFirst = 10 * time.Second
	restartMax   = 5 * time.Minute
)

// process is the streams of one process.
type process struct {
	instance string
	held     func(stream, lease string) // may be nil
	streams  []*producer
}

// run runs every stream until ctx ends. Where there is one, its error ends the process: the platform restarts it and shows that
// it did. Where there are several, one that fails must not stop the others, neither on this replica nor on those that lead it
// next: it alone is stopped, says so (log, /status, metric), and is restarted after a while.
func (p *process) run(ctx context.Context) error {
	if len(p.streams) == 1 {
		s := p.streams[0]
		err := s.takePart(ctx)
		if err != nil && ctx.Err() == nil {
			s.keepFailure(ctx, err, false)
		}
		return err
	}
	var running sync.WaitGroup
	errs := make([]error, len(p.streams))
	for i, s := range p.streams {
		running.Go(func() { errs[i] = s.runWithRestarts(ctx) })
	}
	running.Wait()
	return errors.Join(errs...)
}

// runWithRestarts runs the stream, and restarts it after each failure. The error is what went wrong at the end, after ctx had ended.
func (p *producer) runWithRestarts(ctx context.Context) error {
	backoff := retry.Backoff{Initial: restartFirst, Max: restartMax}
	// Replicas that start together poll their streams in different orders, and so share them.
	if retry.Sleep(ctx, rand.N(p.config.StandbyPoll)) != nil {
		return nil
	}
	for {
		started := time.Now()
		err := p.takePart(ctx)
		if ctx.Err() != nil {
			if err != nil {
				return fmt.Errorf("stop stream %s: %w", p.config.Stream, err)
			}
			return nil
		}
		if time.Since(started) > restartMax {
			backoff.Reset()
		}
		wait := backoff.Next()
		p.log.Error("the stream has failed and will be restarted; the other streams go on",
			telemetry.KeyError, err, telemetry.KeyWait, wait.Milliseconds())
		p.failure.Store(&err)
		p.keepFailure(ctx, err, false)
		if retry.Sleep(ctx, wait) != nil {
			return nil
		}
		p.failure.Store(nil)
	}
}

// yield is how long this replica leaves a stream without a leader to the other replicas: the more streams it leads, the longer,
// so that replicas share them. No replica gives up a stream for that: balance is not promised.
func (p *process) yield(stream *producer) time.Duration {
	const most = 3
	leading := 0
	for _, s := range p.streams {
		if s != stream && s.current.Load() != nil {
			leading++
		}
	}
	return time.Duration(min(leading, most)) * stream.config.StandbyPoll
}

// StatusOfAll is what /status shows of several streams; of one it shows its [Status].
type StatusOfAll struct {
	Instance string   `json:"instance"`
	Streams  []Status `json:"streams"`
}

func (p *process) status() any {
	if len(p.streams) == 1 {
		return p.streams[0].status()
	}
	all := StatusOfAll{Instance: p.instance}
	for _, s := range p.streams {
		all.Streams = append(all.Streams, s.status())
	}
	return all
}

// live is true of any process that can answer and has ended what it had to: a replica that cannot reach its services waits for
// them, and a restart would not bring them back.
func (p *process) live() error {
	var stuck []error
	for _, s := range p.streams {
		stuck = append(stuck, s.alive())
	}
	return errors.Join(stuck...)
}

// ready is true of a replica that could lead each of its streams, as soon as it has reached what that takes, and from then on: a
// rollout waits for it before it stops the old leader, and a new revision with a wrong secret must not replace one that works. One
// stream that has failed does not make the replica unready: that would hold up the rollout that fixes it, and the other streams.
func (p *process) ready() error {
	var missing []error
	failed := 0
	for _, s := range p.streams {
		if s.failure.Load() != nil {
			failed++
			continue
		}
		missing = append(missing, s.able())
	}
	if failed == len(p.streams) {
		return errors.New("every stream has failed; see /status")
	}
	return errors.Join(missing...)
}
