// Package images builds the images of both services from their Dockerfiles and holds them to what a platform expects of them:
// small, not root, on a file system that cannot be written to; alive while they work; stopped by SIGTERM in time, without
// losing anything. The pipeline runs once with them, against the embedded servers and Azurite.
//
// It needs a Docker engine on this machine, and minutes: so it runs only when it is asked for (make images), which starts an
// engine where it can.
package images
