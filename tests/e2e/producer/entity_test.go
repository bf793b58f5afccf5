package producer_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// The producer's doctor reports the entity's properties, if it may read them.
func TestTheDoctorAsksHowTheEntityIsMade(t *testing.T) {
	world.InRealTime(t, world.Options{}, func(w *world.World) {
		plain := func(c *producer.Config, _ *producer.Options) { c.Topic, c.Queue = "", world.PlainQueue }
		w.Administration = w.Administered()
		well := operate(w, "doctor").Out
		require.Regexp(t, `ok +service bus +a sender's link to "changes" opens, in \S+`, well)
		require.Regexp(t, `ok +sessions +required by changes/projector`, well)
		require.Regexp(t, `ok +duplicate detection +"changes" detects duplicates`, well)
		ill := operateWith(w, plain, "doctor").Out
		require.Regexp(t, `PROBLEM +sessions +plain does not require sessions, and without them order is lost`, ill)
		require.Regexp(t, `PROBLEM +duplicate detection +"plain" does not detect duplicates`, ill)
		w.Administration = nil
		url := w.ServeAdministration()
		own := operateWith(w, func(c *producer.Config, _ *producer.Options) { c.Administration = url }, "doctor").Out
		require.Regexp(t, `ok +sessions +required by changes/projector`, own, "as its own setting requires")
		require.Regexp(t, `ok +sessions +unknown: the administration was not asked, or did not answer: SERVICE_BUS_ADMINISTRATION, the URL of the emulator's administration, is not set`, operateWith(w, plain, "doctor").Out)
	})
}

// A rewind reports the subscriptions that will get everything again: by name if the administration
// answers, and otherwise why it does not.
func TestARewindNamesTheSubscriptions(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		beginning, way := time.Now().UTC().Format(time.RFC3339), w.Administered()
		manager, err := admin.NewClientFromConnectionString(w.ProducerConfig().ServiceBus.ConnectionString, &admin.ClientOptions{ClientOptions: *way})
		require.NoError(t, err)
		_, err = manager.CreateSubscription(w.Context(), world.Topic, "audit", nil)
		require.NoError(t, err)
		rewind := func(how *azcore.ClientOptions) string {
			p := startLeader(w, "a", nil)
			published := w.Bus.Stats(world.Topic).Accepted
			w.InsertMany(4, 2)
			w.Eventually("it publishes", func() bool { return w.Bus.Stats(world.Topic).Accepted >= published+4 })
			p.End()
			w.Administration = how
			done := operate(w, "token", "rewind", "--to", beginning)
			done.succeeds()
			return done.Out
		}
		unauthorized := transport(func(r *http.Request) (*http.Response, error) {
			return failure(r, http.StatusUnauthorized, ""), nil
		})
		require.Contains(t, rewind(way), "again, to these subscriptions: changes/audit, changes/projector.\n")
		require.Contains(t, rewind(&azcore.ClientOptions{Transport: unauthorized}),
			"again, to changes and every subscription that it has (which those are, is not known here: this identity may not read the namespace's settings")
		require.Contains(t, rewind(nil), "which those are, is not known here: the administration was not asked, or did not answer: SERVICE_BUS_ADMINISTRATION, ")
		require.Contains(t, operate(w, "token", "rewind", "--to", beginning).Out, "The checkpoint was there already")
	})
}
