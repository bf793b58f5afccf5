package producer_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// withoutTLS is a transport to an administration that serves plain HTTP.
type withoutTLS struct{ host string }

func (p withoutTLS) Do(r *http.Request) (*http.Response, error) {
	r.URL.Scheme, r.URL.Host = "http", p.host
	return http.DefaultClient.Do(r)
}

// administered serves the administration of the world's Service Bus, and returns the options of its
// clients.
func administered(w *world.World) (way *azcore.ClientOptions) {
	w.Helper()
	return &azcore.ClientOptions{Transport: withoutTLS{strings.TrimPrefix(w.ServeAdministration(), "http://")}}
}

// The producer's doctor reports the entity's properties, if it may read them.
func TestTheDoctorAsksHowTheEntityIsMade(t *testing.T) {
	world.InRealTime(t, world.Options{}, func(w *world.World) {
		way := administered(w)
		doctor := func(asked bool, change func(*producer.Config)) string {
			config := w.ProducerConfig()
			change(&config)
			w.Administration = nil
			if asked {
				w.Administration = way
			}
			return w.OperateProducer([]producer.Config{config}, "doctor").Out
		}
		topic := func(*producer.Config) {}
		plain := func(c *producer.Config) { c.Topic, c.Queue = "", world.PlainQueue }
		well := doctor(true, topic)
		require.Regexp(t, `ok +service bus +a sender's link to "changes" opens, in \S+`, well)
		require.Regexp(t, `ok +sessions +required by changes/projector`, well)
		require.Regexp(t, `ok +duplicate detection +"changes" detects duplicates`, well)
		ill := doctor(true, plain)
		require.Regexp(t, `PROBLEM +sessions +plain does not require sessions, and without them order is lost`, ill)
		require.Regexp(t, `PROBLEM +duplicate detection +"plain" does not detect duplicates`, ill)
		w.Administration = nil
		require.Regexp(t, `ok +sessions +required by changes/projector`, doctor(false, func(c *producer.Config) {
			c.Administration = "http://" + way.Transport.(withoutTLS).host
		}), "as its own setting requires")
		require.Regexp(t, `ok +sessions +unknown: the administration was not asked, or did not answer: SERVICE_BUS_ADMINISTRATION, the URL of the emulator's administration, is not set`, doctor(false, plain))
	})
}

// unauthorized is the administration as a client without the Manage right sees it.
type unauthorized struct{}

func (unauthorized) Do(r *http.Request) (*http.Response, error) {
	return &http.Response{Status: "401 Unauthorized", StatusCode: http.StatusUnauthorized, Request: r, Body: http.NoBody, Header: http.Header{}}, nil
}

// A rewind reports the subscriptions that will get everything again: by name if the administration
// answers, and otherwise why it does not.
func TestARewindNamesTheSubscriptions(t *testing.T) {
	world.InRealTime(t, world.Options{}, func(w *world.World) {
		beginning, way := time.Now().UTC().Format(time.RFC3339), administered(w)
		manager, err := admin.NewClientFromConnectionString(w.ProducerConfig().ServiceBus.ConnectionString, &admin.ClientOptions{ClientOptions: *way})
		require.NoError(t, err)
		_, err = manager.CreateSubscription(t.Context(), world.Topic, "audit", nil)
		require.NoError(t, err)
		rewind := func(how *azcore.ClientOptions) string {
			p := w.StartProducer("a", nil)
			w.Leads("a")
			published := w.Bus.Stats(world.Topic).Accepted
			w.InsertMany(4, 2)
			w.Eventually("it publishes", func() bool { return w.Bus.Stats(world.Topic).Accepted >= published+4 })
			p.End()
			w.Administration = how
			done := operate(w, "token", "rewind", "--to", beginning)
			require.Equal(t, 0, done.Code, done.Err)
			return done.Out
		}
		require.Contains(t, rewind(way), "again, to these subscriptions: changes/audit, changes/projector.\n")
		require.Contains(t, rewind(&azcore.ClientOptions{Transport: unauthorized{}}),
			"again, to changes and every subscription that it has (which those are, is not known here: this identity may not read the namespace's settings")
		require.Contains(t, rewind(nil), "which those are, is not known here: the administration was not asked, or did not answer: SERVICE_BUS_ADMINISTRATION, ")
		require.Contains(t, operate(w, "token", "rewind", "--to", beginning).Out, "The checkpoint was there already")
	})
}
