package settings

import (
	"log/slog"
	"time"

	"github.com/sluice-cdc/sluice/shared/telemetry"
)

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
