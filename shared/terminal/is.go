package terminal

import "os"

// Is reports whether a file is a terminal, so that its output is for people who watch. Any other
// character device except the null device counts as a terminal, too.
func Is(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}
