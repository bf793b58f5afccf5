// Package clients holds no code: its tests run the official JavaScript, Python and Java clients of
// Service Bus, MongoDB and Blob storage, and Qpid Proton, against the embedded servers. README.md
// lists what passes.
package clients
