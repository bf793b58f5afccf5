// Package docs compares the pages with the code: settings, their defaults, and the examples shown.
package docs
