package producer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The oplog alert is made of this number.
func TestBehindIsThePositionsAge(t *testing.T) {
	now := time.Unix(0x65000000, 0).Add(90 * time.Second)
	for name, c := range map[string]struct {
		position string
		want     int64
	}{
		"a token of 90 s ago":    {"8265000000000000012B0229296E04", 90_000},
		"of a clock ahead of us": {"82650001000000000129", 0},
		"none yet":               {"", -1},
		"not one of MongoDB's":   {"AAAA65000000", -1},
		"cut off":                {"826500", -1},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, ageMS(c.position, now)) })
	}
}
