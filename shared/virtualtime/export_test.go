package virtualtime

import "time"

// SetWindow changes how long nothing may move.
func SetWindow(d time.Duration) { window = d }

// Detector reports whether the race detector is on.
const Detector = detector
