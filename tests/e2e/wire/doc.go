// Package wire compares what the services send over AMQP with what the official client sends.
package wire
