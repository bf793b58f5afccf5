package commandline

import "fmt"

// Count is a number of things for people: "1 event", "3 events". one names a single thing, and
// takes an s for more.
func Count[N int | int64](n N, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
