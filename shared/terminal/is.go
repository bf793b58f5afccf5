package terminal

import "os"

// Is says whether a file is a terminal: what is shown there is for people, and goes on while they watch. Another device that takes
// characters passes for one, but for the one that throws them away.
func Is(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}
