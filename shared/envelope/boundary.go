package envelope

import (
	"fmt"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Boundary returns the n-th position behind everything of cluster time t and before anything later.
// A write of the state as of t has it as its position, so that the guard recognises changes up to t
// as duplicates and applies later ones; n orders several writes at one t.
//
// In a token the byte behind the cluster time begins the token's version, which is a small number,
// so 0xFF is greater in every version of MongoDB, for events and high-water marks alike. Like
// tokens, boundaries are [Sortable], and [TokenTime] returns their cluster time; [TokenForm]
// returns "". Positions of a stream on Azure DocumentDB are counted, so such a stream has no
// boundary.
func Boundary(t bson.Timestamp, n uint32) string {
	return fmt.Sprintf("82%08X%08X%s%08X", t.T, t.I, boundaryForm, n)
}

// ParseBoundary returns the cluster time and the number in a [Boundary]. ok is false for any other
// position.
func ParseBoundary(position string) (t bson.Timestamp, n uint32, ok bool) {
	const number = 18 + len(boundaryForm)
	if len(position) != number+8 {
		return t, 0, false
	}
	parsed, err := strconv.ParseUint(position[number:], 16, 32)
	t, n = TokenTime(position), uint32(parsed)
	return t, n, err == nil && position == Boundary(t, n)
}

// boundaryForm stands in a boundary where a token has its version.
const boundaryForm = "FF"
