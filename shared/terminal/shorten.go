package terminal

// Shorten returns of an identifier, such as a position or a message's id, what distinguishes it
// from others within a sentence: its beginning, which in a position is its time, and its end. A
// short one is returned whole.
func Shorten(id string) string {
	const begins, ends = 20, 6
	if len(id) <= begins+ends+1 {
		return id
	}
	return id[:begins] + "…" + id[len(id)-ends:]
}
