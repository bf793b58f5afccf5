package changes

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// part returns a fragment with the token's text, {fragment, of}, and fields.
func part(t *testing.T, token string, fragment, of int32, fields ...bson.E) bson.Raw {
	t.Helper()
	return raw(t, append(bson.D{
		{Key: "_id", Value: bson.D{{Key: "_data", Value: token}}},
		{Key: "splitEvent", Value: bson.D{{Key: "fragment", Value: fragment}, {Key: "of", Value: of}}},
	}, fields...))
}

func TestFragmentsBecomeOneEvent(t *testing.T) {
	var f fragments
	whole, _, err := f.addFragment(part(t, "82AA2904", 1, 3, bson.E{Key: "operationType", Value: "update"}))
	require.NoError(t, err)
	require.Nil(t, whole)
	require.True(t, f.pending())
	whole, _, err = f.addFragment(part(t, "82AA2B0204", 2, 3, bson.E{Key: "fullDocument", Value: bson.D{{Key: "a", Value: 1}}}))
	require.NoError(t, err)
	require.Nil(t, whole)
	whole, identity, err := f.addFragment(part(t, "82AA2B0404", 3, 3, bson.E{Key: "documentKey", Value: bson.D{{Key: "_id", Value: 9}}}))
	require.NoError(t, err)
	require.Equal(t, "82AA04", identity, "the token that it would have had in one piece")
	require.Equal(t, raw(t, bson.D{
		{Key: "operationType", Value: "update"},
		{Key: "fullDocument", Value: bson.D{{Key: "a", Value: 1}}},
		{Key: "_id", Value: bson.D{{Key: "_data", Value: "82AA2B0404"}}},
		{Key: "documentKey", Value: bson.D{{Key: "_id", Value: 9}}},
	}), whole)
	require.False(t, f.pending())

	plain := raw(t, bson.D{{Key: "_id", Value: bson.D{{Key: "_data", Value: "82AB2904"}}}})
	whole, identity, err = f.addFragment(plain)
	require.NoError(t, err)
	require.Equal(t, plain, whole)
	require.Equal(t, "82AB2904", identity, "the end of a whole event's token is its own")
}

func TestAnOpaqueTokenOfAFragmentIsKept(t *testing.T) {
	require.Equal(t, "AeAR2904", unsplit("AeAR2904"))
	require.Equal(t, "82AA2B0204", unsplit("82AA2B0204"))
}

// G6: fragments that do not belong together are read again, and the middle of an event is never
// taken for an event.
func TestG6FragmentsThatDoNotBelongTogether(t *testing.T) {
	for name, c := range map[string]struct {
		parts []bson.Raw
		want  error
	}{
		"begun in the middle":    {[]bson.Raw{part(t, "82", 2, 3)}, ErrFragment},
		"one is missing":         {[]bson.Raw{part(t, "82", 1, 3), part(t, "82", 3, 3)}, errTorn},
		"cut otherwise":          {[]bson.Raw{part(t, "82", 1, 3), part(t, "82", 2, 2)}, errTorn},
		"another event between":  {[]bson.Raw{part(t, "82", 1, 3), raw(t, bson.D{{Key: "_id", Value: bson.D{}}})}, errTorn},
		"begun again in between": {[]bson.Raw{part(t, "82", 1, 3), part(t, "82", 1, 3)}, errTorn},
	} {
		t.Run(name, func(t *testing.T) {
			var f fragments
			var err error
			for _, p := range c.parts {
				_, _, err = f.addFragment(p)
			}
			require.ErrorIs(t, err, c.want)
		})
	}
	var f fragments
	_, _, err := f.addFragment(raw(t, bson.D{{Key: "operationType", Value: "insert"}}))
	require.ErrorContains(t, err, "no resume token")
	_, _, err = f.addFragment(part(t, "82", 4, 3))
	require.ErrorContains(t, err, "splitEvent")
}
