package mongo_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
)

// A connection that sends nothing stays open.
func TestAHalfSentMessageEndsItsConnection(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		server := mongo.New(mongo.Options{Host: "mongo:27017"})
		l := netpipe.Serve(t, server.Run)
		half, err := l.DialContext(t.Context(), "tcp", "mongo:27017")
		require.NoError(t, err)
		defer half.Close()
		silent, err := l.DialContext(t.Context(), "tcp", "mongo:27017")
		require.NoError(t, err)
		defer silent.Close()
		_, err = half.Write([]byte{100, 0, 0, 0, 1})
		require.NoError(t, err)
		began := time.Now()
		_, err = half.Read(make([]byte, 1))
		require.Error(t, err)
		require.Equal(t, time.Minute, time.Since(began))
		require.NoError(t, silent.SetReadDeadline(time.Now().Add(time.Hour)))
		_, err = silent.Read(make([]byte, 1))
		require.ErrorContains(t, err, "timeout", "only the deadline ends it")
	})
}
