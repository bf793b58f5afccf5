//go:build !race || go1.27

package oplog

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

func TestHeadroomReportsWhyItIsUnknown(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		var s Sampler
		position := bson.Timestamp{T: 1000}
		headroom := func() (int64, string) { return s.Headroom(position) }

		_, note := headroom()
		require.Equal(t, "not measured yet", note)

		s.last.Store(&sample{oldest: bson.Timestamp{T: 400}, at: time.Now()})
		seconds, note := headroom()
		require.Empty(t, note)
		require.EqualValues(t, 600, seconds)
		_, note = s.Headroom(bson.Timestamp{})
		require.Equal(t, "the position contains no time", note)

		s.last.Store(&sample{oldest: bson.Timestamp{T: 1030}, at: time.Now()})
		seconds, _ = headroom()
		require.EqualValues(t, -30, seconds, "lost, and by how much")

		time.Sleep(maxSampleAge + time.Second) // virtual
		_, note = headroom()
		require.Equal(t, "MongoDB does not answer", note)

		s.last.Store(&sample{err: ErrForbidden, at: time.Now()})
		time.Sleep(time.Hour) // virtual
		_, note = headroom()
		require.Equal(t, "needs read on local", note)
	})
}
