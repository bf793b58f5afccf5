package projector

import (
	"strings"
	"time"

	"github.com/sluice-cdc/sluice/projector/internal/remote"
	"github.com/sluice-cdc/sluice/projector/internal/sessions"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/settings"
)

// Validate reports every problem, joined. Whether the projection exists is known to [Run] alone.
func (c *Config) Validate() error {
	var p settings.Checks
	p.Add(c.ServiceBus.Validate(), c.ServiceBus.ValidateAdministration(c.Administration), c.entity().Validate(), settings.CheckMongoURI("MONGODB_URI", c.MongoURI))
	p.Add(settings.MongoDatabase("READ_MODEL_DATABASE", c.Database))
	if c.SourceMongoURI != "" {
		p.Add(settings.CheckMongoURI("SOURCE_MONGODB_URI", c.SourceMongoURI))
	}
	if c.SourceDatabase != "" {
		p.Add(settings.MongoDatabase("SOURCE_DATABASE", c.SourceDatabase))
	}
	if c.SourceCollection != "" {
		p.Add(settings.MongoCollection("SOURCE_COLLECTION", c.SourceCollection))
	}
	mirror := func(setting string, alone projection.MirrorOptions) {
		if _, err := projection.NewMirror(alone); err != nil {
			p.Addf("%s: %s", setting, strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
	mirror("MIRROR_COLLECTION", projection.MirrorOptions{Collection: c.MirrorCollection})
	mirror("MIRROR_KEY", projection.MirrorOptions{Key: c.MirrorKey})
	mirror("MIRROR_FIELDS", projection.MirrorOptions{Fields: c.MirrorFields})
	if c.Blob != (azure.Blob{}) {
		p.Add(c.Blob.Validate())
		p.Require(c.ClaimContainer != "", "CLAIM_CHECK_CONTAINER: must not be empty")
	}
	if c.ProjectionURL != "" {
		if err := remote.CheckURL(c.ProjectionURL); err != nil {
			p.Addf("PROJECTION_URL: %v", err)
		}
		p.Require(c.Projection != "", "PROJECTION: is required with PROJECTION_URL: it is the name that the program declares, and that of its guards")
		p.Add(settings.Between("PROJECTION_TIMEOUT", c.ProjectionTimeout, 100*time.Millisecond, 5*time.Minute))
	}
	if c.SessionReceiver != "" {
		p.Add(settings.OneOf("SESSION_RECEIVER", c.SessionReceiver, string(sessions.Auto), string(sessions.Direct), string(sessions.SDK)))
	}
	p.Add(
		settings.Between("MAX_SESSIONS", c.MaxSessions, 1, 5000),
		settings.Between("SERVICE_BUS_CONNECTIONS", c.Connections, 0, 1000),
		settings.Between("RECEIVE_BATCH", c.ReceiveBatch, 1, 1000),
		settings.AtLeast("MAX_IN_FLIGHT_BYTES", c.MaxInFlightBytes, 0),
		settings.AtLeast("SESSION_IDLE", c.SessionIdle, time.Millisecond),
		settings.AtLeast("SESSION_MAX_HOLD", c.SessionMaxHold, time.Millisecond),
		settings.AtLeast("ACCEPT_TIMEOUT", c.AcceptTimeout, time.Second),
		settings.AtLeast("APPLY_TIMEOUT", c.ApplyTimeout, 100*time.Millisecond),
		settings.AtLeast("UNDECIDED_AFTER", c.UndecidedAfter, 0),
		settings.AtLeast("VERSION_GAP_WAIT", c.VersionGapWait, 0),
		settings.AtLeast("VERSION_FIRST", c.VersionFirst, 0),
		settings.Between("MAX_DELIVERIES", c.MaxDeliveries, 0, 1_000_000),
		settings.AtLeast("SETTLE_TIMEOUT", c.SettleTimeout, 100*time.Millisecond),
		settings.AtLeast("SHUTDOWN_TIMEOUT", c.ShutdownTimeout, time.Second),
	)
	p.Process(c.Process)
	p.Require(c.Connections <= c.MaxSessions || c.MaxSessions < 1,
		"SERVICE_BUS_CONNECTIONS: must not exceed MAX_SESSIONS: the rest would have nothing to do")
	p.Require(c.VersionFirst == 0 || c.VersionGapWait > 0, "VERSION_FIRST: needs VERSION_GAP_WAIT: with 0 no version is missed")
	p.Require(c.SessionIdle <= c.SessionMaxHold, "SESSION_IDLE: must not exceed SESSION_MAX_HOLD")
	p.Require(c.SettleTimeout < c.ShutdownTimeout, "SETTLE_TIMEOUT: must be shorter than SHUTDOWN_TIMEOUT, which it has to fit in")
	return p.Err()
}
