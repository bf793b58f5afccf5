package virtualtime

import "time"

// SetWindow changes how long nothing may move.
func SetWindow(d time.Duration) { window = d }

// Detector says whether the race detector is on.
const Detector = detector
