package changes

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

func TestReopeningsAreCountedByCause(t *testing.T) {
	for cause, err := range map[string]error{
		causeInvalidated: nil,
		causeEnded:       errEnded,
		causeSilent:      fmt.Errorf("%w within 30s", errNoResponse),
		causeLost:        mongo.CommandError{Code: 286},
		causeServer:      mongo.CommandError{Code: 10107},
		causeNetwork:     errors.New("connection refused"),
	} {
		require.Equal(t, cause, causeOf(err))
	}
}
