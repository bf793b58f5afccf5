package envelope_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// recordedTokens are tokens that real servers wrote, of both versions: events with keys of several
// types and high-water marks.
var recordedTokens = []string{
	"825D89809B000000012B022C0100296E5A1004693B90960EC349A2B616B1B2F1CF3D2346645F696400645D897EE109190B015FCB21AD0004",
	"8260912B960000001E2B022C0100296E5A100497F661F4018447EEAE871045D76AB3E846645F6964006460912B96CE0EFD70017274DA0004",
	"82612E8513000000012B042C0100296E5A1004A5093ABB38FE4B9EA67F01BB1A96D812463C6F7065726174696F6E54797065003C696E736572740046646F63756D656E744B657900463C5F6964003C5F5F5F7800000004",
	"82612F653E000000022B0229296E04",
	"8263515EAC000000022B0429296E1404",
	"8265580539000000012B022C0100296E5A1004A7F55A5B35BD4C7DB2CD56C6CFEA9C49463C5F6964003C62656572000004",
	"8269EEDD10000000022B042C0100296E5A1004343A87E2D14843F68EE9F0BDD1A9E229463C6F7065726174696F6E54797065003C64656C6574650046646F63756D656E744B657900463C5F6964003C636F6465782D636170747572652D3137373732363138333737313200000004",
}

func TestBoundaryLiesBetweenTheTokensOfItsTimeAndLaterOnes(t *testing.T) {
	for _, token := range recordedTokens {
		at := envelope.TokenTime(token)
		before, last := bson.Timestamp{T: at.T, I: at.I - 1}, uint32(math.MaxUint32)
		require.Greater(t, token, envelope.Boundary(before, last))
		require.Greater(t, token, envelope.Boundary(bson.Timestamp{T: at.T - 1, I: math.MaxUint32}, last))
		require.Less(t, token, envelope.Boundary(at, 0))
		// A position may be longer than a token: if it has been bounded, or comes directly after
		// another.
		require.Less(t, token+strings.Repeat("FF", 64), envelope.Boundary(at, 0))
	}
}

func TestBoundaryIsAPosition(t *testing.T) {
	at := bson.Timestamp{T: 1_700_000_000, I: 7}
	positions := []string{
		envelope.Boundary(bson.Timestamp{}, 0), envelope.Boundary(at, 0), envelope.Boundary(at, 1), envelope.Boundary(at, math.MaxUint32),
		envelope.Boundary(bson.Timestamp{T: at.T, I: at.I + 1}, 0), envelope.Boundary(bson.Timestamp{T: at.T + 1}, 0),
	}
	require.IsIncreasing(t, positions)
	for _, p := range positions {
		require.True(t, envelope.Sortable(p), p)
		require.Empty(t, envelope.TokenForm(p), p)
	}
	require.Equal(t, at, envelope.TokenTime(positions[1]))
}

func TestParseBoundaryReadsBoundariesAlone(t *testing.T) {
	at := bson.Timestamp{T: 1700000000, I: 7}
	for _, n := range []uint32{0, 1, math.MaxUint32} {
		parsed, number, ok := envelope.ParseBoundary(envelope.Boundary(at, n))
		require.True(t, ok)
		require.Equal(t, at, parsed)
		require.Equal(t, n, number)
	}
	for _, position := range append(recordedTokens, "", "n0000000011.000000000000006964", envelope.Boundary(at, 1)+"0") {
		_, _, ok := envelope.ParseBoundary(position)
		require.False(t, ok, position)
	}
}
