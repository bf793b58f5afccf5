// Package console tests the console in a browser, on runs of the local command.
package console
