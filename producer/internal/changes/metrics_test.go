package changes

import (
	"errors"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

func TestReopeningsAreCountedByCause(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry())
	for cause, err := range map[string]error{
		causeInvalidated: nil,
		causeEnded:       errEnded,
		causeSilent:      fmt.Errorf("%w within 30s", errNoResponse),
		causeLost:        mongo.CommandError{Code: 286},
		causeServer:      mongo.CommandError{Code: 10107},
		causeNetwork:     errors.New("connection refused"),
	} {
		m.reopened(err)
		require.InDelta(t, 1, testutil.ToFloat64(m.reopenings.WithLabelValues(cause)), 0, cause)
	}
	(*Metrics)(nil).reopened(nil)
}
