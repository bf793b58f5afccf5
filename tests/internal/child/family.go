package child

import (
	"time"

	"github.com/prometheus/procfs"
)

// Family returns a process and its descendants, the youngest last, if the system has /proc, as
// Linux does.
func Family(pid int) []int {
	all, _ := procfs.AllProcs() // none without /proc
	children := map[int][]int{}
	for _, p := range all {
		if stat, err := p.Stat(); err == nil { // else it has ended
			children[stat.PPID] = append(children[stat.PPID], p.PID)
		}
	}
	family := []int{pid}
	for i := 0; i < len(family); i++ {
		family = append(family, children[family[i]]...)
	}
	return family
}

// Use returns the time in user and system mode that a process and its descendants have used, in
// steps of 10 ms, and their resident memory in MiB; 0 if the system has no /proc, or if they have
// ended.
func Use(pid int) (processor time.Duration, resident float64) {
	for _, member := range Family(pid) {
		p, err := procfs.NewProc(member)
		if err != nil {
			continue
		}
		if stat, err := p.Stat(); err == nil {
			processor += time.Duration(stat.CPUTime() * float64(time.Second))
			resident += float64(stat.ResidentMemory()) / (1 << 20)
		}
	}
	return processor, resident
}
