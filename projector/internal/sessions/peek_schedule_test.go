package sessions

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// peeks plays n receives, each with a peek or none, and returns those at which it peeked.
func peeks(o *peekSchedule, n int, more func(receive int) bool) (at []int) {
	for i := range n {
		if o.due() {
			at = append(at, i)
			o.observe(more(i))
		}
	}
	return at
}

func TestPeekSchedulePeeksEachTimeWhileItPays(t *testing.T) {
	var o peekSchedule
	require.Equal(t, []int{0, 1, 2, 3}, peeks(&o, 4, func(int) bool { return true }))
}

func TestPeekSchedulePeeksLessAndLessWhileItDoesNotPay(t *testing.T) {
	var o peekSchedule
	require.Equal(t, []int{0, 2, 6, 14, 22, 30}, peeks(&o, 32, func(int) bool { return false }))
}

func TestPeekScheduleSeesABacklogThatBegins(t *testing.T) {
	var o peekSchedule
	require.Equal(t, []int{0, 2, 6, 14, 15, 16}, peeks(&o, 17, func(receive int) bool { return receive >= 10 }))
}
