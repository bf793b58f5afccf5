//go:build !race

package virtualtime

const detector = false
