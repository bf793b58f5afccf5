package sessions

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// peeks plays n receives, each with a peek or none, and says at which ones it peeked.
func peeks(o *outlook, n int, more func(receive int) bool) (at []int) {
	for i := range n {
		if o.due() {
			at = append(at, i)
			o.saw(more(i))
		}
	}
	return at
}

func TestOutlookPeeksEachTimeWhileItPays(t *testing.T) {
	var o outlook
	require.Equal(t, []int{0, 1, 2, 3}, peeks(&o, 4, func(int) bool { return true }))
}

func TestOutlookPeeksLessAndLessWhileItDoesNotPay(t *testing.T) {
	var o outlook
	require.Equal(t, []int{0, 2, 6, 14, 22, 30}, peeks(&o, 32, func(int) bool { return false }))
}

func TestOutlookSeesABacklogThatBegins(t *testing.T) {
	var o outlook
	require.Equal(t, []int{0, 2, 6, 14, 15, 16}, peeks(&o, 17, func(receive int) bool { return receive >= 10 }))
}
