package telemetry

import (
	"runtime"
	"runtime/debug"
)

// Version is the version of this build. The build of the images and make build set it by -ldflags.
// Otherwise it is the commit or the module's version that the Go command recorded, else "unknown".
var Version = ""

// Build describes this build, for the first line of a service's log: its version and the Go that
// built it.
func Build() (version, goVersion string) {
	if Version != "" {
		return Version, runtime.Version()
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				return setting.Value, runtime.Version()
			}
		}
		if v := info.Main.Version; v != "" && v != "(devel)" { // go install …@version
			return v, runtime.Version()
		}
	}
	return "unknown", runtime.Version()
}
