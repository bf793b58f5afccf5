// Package connection tests shared/servicebus, one AMQP connection that is used by many, against the
// embedded Service Bus.
package connection
