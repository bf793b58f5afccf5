package child

import "github.com/prometheus/procfs"

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
