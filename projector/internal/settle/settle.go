// Package settle decides what becomes of a message once its change has been dealt with, and tells the broker.
//
// Guaranteed: a message is completed only on the strength of a result that says that its effect is committed
// ([apply.Applied], [apply.Duplicate]); a message whose change is pending is left alone, so that no delivery count rises.
// Not guaranteed: that a settlement arrives. One that fails leaves the message to be delivered again, and the guard of the
// read model recognises it then.
package settle

import "github.com/sluice-cdc/sluice/projector/internal/apply"

// Action is what to tell the broker.
type Action uint8

// The actions.
const (
	// Leave tells it nothing: the message stays locked.
	Leave Action = iota
	// Complete removes the message.
	Complete
	// DeadLetter moves the message to the dead-letter queue, with a reason and a description.
	DeadLetter
)

// Choice is what to do with one message.
type Choice struct {
	Action      Action
	Reason      string
	Description string
}

// maxDescription keeps a description well below the broker's limit of 4096 characters.
const maxDescription = 1024

// Choose decides for one message by what became of its change. It is pure.
func Choose(result apply.Result) Choice {
	switch result.Kind {
	case apply.Applied, apply.Duplicate:
		return Choice{Action: Complete}
	case apply.Poison, apply.Parked:
		if result.Kind == apply.Poison && !result.Recorded {
			break // later events would overtake it
		}
		return Choice{Action: DeadLetter, Reason: result.Reason, Description: shorten(result.Description)}
	case apply.Pending, apply.Gap:
	}
	return Choice{Action: Leave}
}

// shorten cuts text to the limit, between two characters.
func shorten(text string) string {
	if len(text) <= maxDescription {
		return text
	}
	cut := 0
	for i := range text {
		if i > maxDescription-len("…") {
			break
		}
		cut = i
	}
	return text[:cut] + "…"
}
