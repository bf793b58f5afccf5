package child

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// Family returns a process and its descendants, the youngest last, if the system has /proc, as
// Linux does.
func Family(pid int) []int {
	family := []int{pid}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is valid
	for i := 0; i < len(family); i++ {
		for _, path := range stats {
			stat, err := os.ReadFile(path)
			if err != nil {
				continue // it has ended
			}
			// PID (NAME) STATE PARENT …, and the name may hold anything.
			fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
			if len(fields) < 2 || string(fields[1]) != strconv.Itoa(family[i]) {
				continue
			}
			if child, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
				family = append(family, child)
			}
		}
	}
	return family
}
