// Package images builds the images of both services from their Dockerfiles and checks what a
// platform expects of them: small, not root, on a read-only file system; alive while they work;
// stopped by SIGTERM in time, without losing anything. The pipeline runs once with them, against
// the embedded servers and Azurite.
//
// It needs a Docker engine on this machine, and minutes, so it runs only on request (make images),
// which starts an engine if it can.
package images
