//go:build race

package virtualtime

const detector = true
