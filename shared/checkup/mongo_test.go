package checkup_test

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/shared/checkup"
)

// fails is a dialer that always fails.
type fails struct{ err error }

func (f fails) DialContext(context.Context, string, string) (net.Conn, error) { return nil, f.err }

// A server that closes connections, before or after it was asked something, is one whose TLS is not
// what the client takes it for.
func TestClosedConnectionsAreReportedAsTLSMismatch(t *testing.T) {
	t.Parallel()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // the test is over
			}
			_, _ = conn.Read(make([]byte, 1)) // what comes first decides
			_ = conn.Close()
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait()
	})
	for query, want := range map[string][2]string{
		"tls=true":  {"it does not speak TLS", "take tls=true out of MONGODB_URI"},
		"tls=false": {"as a server does that requires TLS or a client's certificate", "set tls=true in MONGODB_URI"},
	} {
		client, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + l.Addr().String() + "/?" + query).
			SetServerSelectionTimeout(200 * time.Millisecond))
		require.NoError(t, err)
		var found checkup.Findings
		require.False(t, found.Mongo(t.Context(), client, "mongodb", "MONGODB_URI", "change streams"))
		require.Len(t, found, 1)
		require.Contains(t, found[0].Message, want[0], query)
		require.Contains(t, found[0].Remedy, want[1], query)
		require.NoError(t, client.Disconnect(t.Context()))
	}
}

// Through the real driver: what it makes of a cause is what people read.
func TestEachCauseOfSilenceHasItsOwnWords(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		`there is no host "db.example"`:             &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "db.example", IsNotFound: true}},
		`nothing listens there: db.example:27017: `: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
		`its certificate is not accepted`:           x509.UnknownAuthorityError{},
		`it does not answer: db.example:27017: `:    errors.New("i/o timeout"),
	} {
		client, opened := mongo.Connect(options.Client().ApplyURI("mongodb://user:hunter2@db.example,db2.example/?replicaSet=rs0").
			SetDialer(fails{err}).SetServerSelectionTimeout(200 * time.Millisecond))
		require.NoError(t, opened)
		var found checkup.Findings
		require.False(t, found.Mongo(t.Context(), client, "mongodb", "MONGODB_URI", "change streams"))
		require.Len(t, found, 1)
		require.Contains(t, found[0].Message, want)
		require.NotContains(t, found[0].Message, "\n", "several hosts are in one line")
		require.NotContains(t, found[0].Message+found[0].Remedy, "hunter2")
		require.Contains(t, found[0].Remedy, "MONGODB_URI")
		require.NoError(t, client.Disconnect(t.Context()))
	}
}
