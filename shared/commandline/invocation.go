package commandline

import (
	"path/filepath"
	"strings"
)

// Invocation is what people type to run a program: the name of its executable, os.Args[0], or `go
// run .` where the go command has built it for one run. Messages name commands by it, so that they
// can be copied whatever the program is called.
func Invocation(executable string) string {
	slashed := filepath.ToSlash(executable)
	if strings.Contains(slashed, "/go-build") && strings.HasSuffix(filepath.ToSlash(filepath.Dir(slashed)), "/exe") {
		return "go run ."
	}
	return strings.TrimSuffix(filepath.Base(slashed), ".exe")
}
