// Package memory reads how much memory the process may use: the limit of its container, which the
// platform enforces by killing the process.
package memory

import (
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// limitFiles hold the memory limit of the process's control group: first version 2's file, then
// version 1's.
var limitFiles = []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}

// Limit returns the container's limit in bytes, or 0 without a limit or if it cannot be read.
func Limit() int64 { return limit(limitFiles, os.ReadFile) }

func limit(files []string, read func(string) ([]byte, error)) int64 {
	for _, name := range files {
		text, err := read(name)
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil || n <= 0 || n >= math.MaxInt64/2 { // "max", and a huge number in version 1
			return 0
		}
		return n
	}
	return 0
}

// Bound sets the Go runtime's memory limit to four fifths of the container's limit, unless
// GOMEMLIMIT is set: the runtime collects garbage more often as it approaches the limit. It returns
// the limit that it set, in bytes, or 0.
func Bound() int64 {
	if os.Getenv("GOMEMLIMIT") != "" {
		return 0
	}
	bytes := Limit() / 5 * 4
	if bytes > 0 {
		debug.SetMemoryLimit(bytes)
	}
	return bytes
}
