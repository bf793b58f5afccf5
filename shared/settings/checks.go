package settings

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// Checks collects the problems of a configuration, for its Validate. The zero value is ready to
// use.
type Checks struct{ problems []error }

// Add adds the results of checks. A nil is no problem.
func (c *Checks) Add(problems ...error) {
	for _, problem := range problems {
		if problem != nil {
			c.problems = append(c.problems, problem)
		}
	}
}

// Addf adds a problem. Its text must begin with the setting's name and a colon.
func (c *Checks) Addf(format string, args ...any) { c.Add(fmt.Errorf(format, args...)) }

// Require adds a problem unless ok.
func (c *Checks) Require(ok bool, format string, args ...any) {
	if !ok {
		c.Addf(format, args...)
	}
}

// Err returns all problems, joined; nil without any.
func (c *Checks) Err() error { return errors.Join(c.problems...) }

// Problems returns all problems as [Problems], for settings that are checked when they are needed.
func (c *Checks) Problems() error {
	if len(c.problems) == 0 {
		return nil
	}
	return Problems(c.problems)
}

// AtLeast returns nil for a value that is at least low.
func AtLeast[T cmp.Ordered](name string, value, low T) error {
	if value < low {
		return fmt.Errorf("%s: must be at least %v (it is %v)", name, low, value)
	}
	return nil
}

// AtMost returns nil for a value that is at most high.
func AtMost[T cmp.Ordered](name string, value, high T) error {
	if value > high {
		return fmt.Errorf("%s: must be at most %v (it is %v)", name, high, value)
	}
	return nil
}

// Between returns nil for a value from low to high.
func Between[T cmp.Ordered](name string, value, low, high T) error {
	if value < low || value > high {
		return fmt.Errorf("%s: must be from %v to %v (it is %v)", name, low, high, value)
	}
	return nil
}

// OneOf returns nil for one of the choices.
func OneOf(name, value string, choices ...string) error {
	if !slices.Contains(choices, value) {
		return fmt.Errorf("%s: must be one of %s (it is %q)", name, strings.Join(choices, ", "), value)
	}
	return nil
}

var containerName = regexp.MustCompile(`^[a-z0-9](-?[a-z0-9])+$`)

// ContainerName returns nil if Blob storage accepts the name. With any other name, every request
// would fail, and retrying would not help.
func ContainerName(name, value string) error {
	if !containerName.MatchString(value) || len(value) < 3 || len(value) > 63 {
		return fmt.Errorf("%s: must have 3 to 63 lower-case letters, digits and single hyphens between them (it is %q)", name, value)
	}
	return nil
}

// Process are the settings of a process of either service, whatever it does.
type Process struct {
	// HTTPAddr is the address of health, metrics and status (host:port); empty serves nothing.
	HTTPAddr string `envconfig:"HTTP_ADDR" default:":8080"`
	// HTTPUI serves the console of this replica on HTTPAddr at /ui/; it changes nothing.
	HTTPUI bool `envconfig:"HTTP_UI" default:"false"`
	// LogLevel is debug, info, warn or error.
	LogLevel slog.Level `envconfig:"LOG_LEVEL" default:"info"`
	// LogFormat is json, text (for people), or auto: text if standard output is a terminal.
	LogFormat string `envconfig:"LOG_FORMAT" default:"auto"`
	// StatusInterval is the time between two log records of the status, which alerts use; 0 writes
	// none.
	StatusInterval time.Duration `envconfig:"STATUS_INTERVAL" default:"15s"`
	// IgnoreVariables are variables of other programs that look like misspelt settings of this one,
	// which would be refused.
	IgnoreVariables []string `envconfig:"IGNORE_VARIABLES" default:""`
}

// Process adds what is wrong with the settings of the process. An empty LogFormat is that of a
// configuration which was not read from the environment.
func (c *Checks) Process(p Process) {
	if p.LogFormat != "" {
		c.Add(OneOf("LOG_FORMAT", p.LogFormat, telemetry.FormatAuto, telemetry.FormatJSON, telemetry.FormatText))
	}
	c.Add(AtLeast("STATUS_INTERVAL", p.StatusInterval, 0))
}
