// Package docs holds the pages against the code: settings, their defaults, and the examples shown.
package docs
