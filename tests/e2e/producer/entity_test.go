package producer_test

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// withoutTLS is a way to an administration that serves plain HTTP.
type withoutTLS struct{ host string }

func (p withoutTLS) Do(r *http.Request) (*http.Response, error) {
	r.URL.Scheme, r.URL.Host = "http", p.host
	return http.DefaultClient.Do(r)
}

// The doctor of the producer tells how the entity is made, where it may know.
func TestTheDoctorAsksHowTheEntityIsMade(t *testing.T) {
	world.InRealTime(t, world.Options{}, func(w *world.World) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		var serving sync.WaitGroup
		serving.Go(func() { _ = w.Bus.RunManagement(ctx, l) })
		defer serving.Wait()
		defer stop()
		doctor := func(asked bool, change func(*producer.Config)) string {
			config := w.ProducerConfig()
			change(&config)
			w.Administration = nil
			if asked {
				w.Administration = &azcore.ClientOptions{Transport: withoutTLS{l.Addr().String()}}
			}
			return w.OperateProducer([]producer.Config{config}, "doctor").Out
		}
		topic := func(*producer.Config) {}
		plain := func(c *producer.Config) { c.Topic, c.Queue = "", world.PlainQueue }
		well := doctor(true, topic)
		require.Regexp(t, `ok +service bus +a sender's link to "changes" opens, in \S+`, well)
		require.Regexp(t, `ok +sessions +required by changes/projector`, well)
		require.Regexp(t, `ok +duplicate detection +"changes" recognises`, well)
		ill := doctor(true, plain)
		require.Regexp(t, `PROBLEM +sessions +plain does not require sessions, and without them order is lost`, ill)
		require.Regexp(t, `PROBLEM +duplicate detection +"plain" does not recognise`, ill)
		require.Regexp(t, `ok +sessions +unknown: the administration does not say: an emulator is not asked`, doctor(false, plain))
	})
}
