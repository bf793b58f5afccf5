package servicebus

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/amqp"
)

// linkProperties are the service's properties of a link that clients may set. Only the timeout has
// an effect here.
var linkProperties = []amqp.Symbol{
	propTimeout, vendor + "entity-type", vendor + "receiver-name", vendor + "batch-flush-interval", vendor + "tracking-id", vendor + "client-id",
}

// checkLink refuses a property that would be the service's and that it does not have. Others are
// the client's own.
func checkLink(l *amqp.Link) error {
	for _, name := range slices.Sorted(maps.Keys(l.Properties)) {
		if strings.HasPrefix(string(name), vendor) && !slices.Contains(linkProperties, name) {
			return refusal(amqp.CondNotImplemented, fmt.Sprintf("the link property '%s' is not supported by this emulator", name))
		}
	}
	return nil
}

// requestProperties are the service's properties of a request that clients may give.
var requestProperties = []string{vendor + "server-timeout", vendor + "tracking-id"}

// requestFields are the fields that the body of each operation may have.
var requestFields = map[string][]string{
	"renew-lock":                 {"lock-tokens"},
	"renew-session-lock":         {"session-id"},
	"get-session-state":          {"session-id"},
	"set-session-state":          {"session-id", "session-state"},
	"peek-message":               {"from-sequence-number", "message-count", "session-id"},
	"receive-by-sequence-number": {"sequence-numbers", "receiver-settle-mode", "session-id"},
	"update-disposition": {
		"disposition-status", "lock-tokens", "deadletter-reason", "deadletter-description", "properties-to-modify", "session-id",
	},
	"get-message-sessions":     {"last-updated-time", "skip", "top"},
	"add-rule":                 {"rule-name", "rule-description"},
	"remove-rule":              {"rule-name"},
	"enumerate-rules":          {"skip", "top"},
	"schedule-message":         {"messages"},
	"cancel-scheduled-message": {"sequence-numbers"},
}

// scheduledFields are the fields that schedule-message may have for each message.
var scheduledFields = []string{"message", "message-id", "session-id", "partition-key", "via-partition-key"}

// fault returns why a request holds what its operation does not take; empty if it does not.
// Operations that are not provided are refused elsewhere.
func (r *request) fault() string {
	for _, name := range slices.Sorted(maps.Keys(r.App)) {
		if strings.HasPrefix(name, vendor) && !slices.Contains(requestProperties, name) {
			return fmt.Sprintf("the property '%s' of a request is not supported by this emulator", name)
		}
	}
	known, provided := requestFields[strings.TrimPrefix(r.Operation, vendor)]
	if !provided {
		return ""
	}
	if r.body() == nil {
		return fmt.Sprintf("the body of '%s' is %T, not a map", r.Operation, r.Value)
	}
	if name := other(r.body(), known); name != "" {
		return fmt.Sprintf("the field '%s' of '%s' is not supported by this emulator", name, r.Operation)
	}
	scheduled, _ := r.body()["messages"].([]any)
	for _, v := range scheduled {
		if name := other(amqp.StringMap(v), scheduledFields); name != "" {
			return fmt.Sprintf("the field '%s' of a message of '%s' is not supported by this emulator", name, r.Operation)
		}
	}
	return ""
}

// other returns the first name in order that is not known; empty if all are.
func other(m map[string]any, known []string) string {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if !slices.Contains(known, name) {
			return name
		}
	}
	return ""
}
