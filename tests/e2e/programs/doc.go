// Package programs runs the built programs on the embedded servers with wrong configurations and
// unusual inputs, and tests what they print and with which exit code they end.
package programs
