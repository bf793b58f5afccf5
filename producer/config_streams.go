package producer

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/settings"
)

// loadStreams reads the settings of every stream from the environment: of one stream, or of those
// that STREAMS names. A stream's own variables, such as ORDERS_MONGODB_COLLECTION for orders,
// override those that all streams share. The error is a [settings.Problems] that lists every
// problem found, each under the name of its variable.
func loadStreams() ([]Config, error) {
	var process Config
	_ = settings.Load(&process) // problems are found below, stream by stream
	// SOURCE_MONGODB_URI is a setting of the projector.
	known := settings.Known{Spec: process, OfProcess: processSettings, Foreign: append(process.IgnoreVariables, "SOURCE_MONGODB_URI")}
	if len(process.Streams) == 0 {
		c, err := loadStream("")
		problems, _ := errors.AsType[settings.Problems](err)
		if problems = append(problems, known.Misspelt(os.Environ())...); len(problems) > 0 {
			err = problems
		}
		return []Config{c}, err
	}
	var cfgs []Config
	var problems settings.Problems
	names := map[string]string{} // names in STREAMS by full stream name
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
		for _, problem := range checkStreamName(name) {
			report(problem)
		}
		c, err := loadStream(variablePrefix(name))
		if of, ok := errors.AsType[settings.Problems](err); ok {
			for _, problem := range of {
				report(problem)
			}
		}
		if other, taken := names[c.Stream]; taken {
			report(fmt.Errorf("STREAMS: %s and %s are both the stream %q: watch two collections, or set %sSTREAM_NAME",
				other, name, c.Stream, variablePrefix(name)))
		}
		names[c.Stream] = name
		cfgs = append(cfgs, c)
		known.Prefixes = append(known.Prefixes, variablePrefix(name))
	}
	problems = append(problems, known.Misspelt(os.Environ())...)
	if len(problems) > 0 {
		return cfgs, problems
	}
	return cfgs, nil
}

func loadStream(prefix string) (Config, error) {
	var c Config
	err := settings.LoadWithPrefix(&c, prefix)
	_, shared := os.LookupEnv("START_FROM")
	_, own := os.LookupEnv(prefix + "START_FROM")
	if !c.checkpointsInBlob() && !shared && !own {
		problems, _ := errors.AsType[settings.Problems](err)
		err = append(problems, fmt.Errorf("START_FROM: is required with CHECKPOINT_STORE=%s. If the stream has been published with another "+
			"store, a new checkpoint would lose its backlog: use checkpoint, which creates none", c.CheckpointStore))
	}
	if c.Stream == "" {
		c.Stream = c.Database + "." + c.Collection
	}
	return c, err
}

// variablePrefix returns the prefix of the variables of a stream.
func variablePrefix(stream string) string {
	return strings.ToUpper(strings.ReplaceAll(stream, "-", "_")) + "_"
}

// processSettings are the settings that a stream cannot override.
var processSettings = []string{"STREAMS", "HTTP_ADDR", "HTTP_UI", "LOG_LEVEL", "LOG_FORMAT", "STATUS_INTERVAL", "IGNORE_VARIABLES"}

var streamName = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)

// checkStreamName returns the problems with a stream's name.
func checkStreamName(stream string) (problems []error) {
	if !streamName.MatchString(stream) {
		return []error{fmt.Errorf("STREAMS: %q is not a valid stream name: use lower-case letters, digits and single hyphens, and begin with a letter", stream)}
	}
	known := settings.Names(Config{})
	for _, variable := range known {
		own := variablePrefix(stream) + variable
		if _, set := os.LookupEnv(own); set && slices.Contains(processSettings, variable) {
			problems = append(problems, fmt.Errorf("%s: is a setting of the whole process: set %s instead", own, variable))
		}
		if slices.Contains(known, own) {
			problems = append(problems, fmt.Errorf("STREAMS: %s cannot be a stream's name: %s is a setting of every stream", stream, own))
		}
	}
	return problems
}

// chooseStream returns the stream that a command is about, by its name in STREAMS or its full name,
// or the only stream if name is empty. The error lists the streams.
func chooseStream(cfgs []Config, name string) (Config, error) {
	var known []string
	for i, c := range cfgs {
		short := c.Stream
		if len(c.Streams) == len(cfgs) {
			short = c.Streams[i]
		}
		if name == short || name == c.Stream || name == "" && len(cfgs) == 1 {
			return c, nil
		}
		known = append(known, short)
	}
	if name == "" {
		return Config{}, fmt.Errorf("%w: there are several streams: choose one with --stream %s", commandline.ErrUsage, strings.Join(known, "|"))
	}
	return Config{}, fmt.Errorf("%w: there is no stream %q; the streams are %s", commandline.ErrUsage, name, strings.Join(known, ", "))
}
