// Package atomapi is the HTTP administration of a Service Bus namespace: the Atom/XML interface
// that the SDKs' administration clients use to create, read, list, update and delete queues,
// topics, subscriptions and rules and to read runtime counts, and GET /health.
//
// Guaranteed: what it changes takes effect in the broker before the answer is sent; a change
// the broker refuses changes nothing; names are compared without case; what the service does
// not allow to be changed is refused.
//
// Not provided: quotas, AutoDeleteOnIdle, UserMetadata limits, express entities and message
// stores of a size: these properties are kept and returned, and nothing else. Authorization
// rules of an entity are kept and returned, and are no keys.
package atomapi
