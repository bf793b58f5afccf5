package servicebus

import (
	"fmt"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/amqp"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/broker"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/filter"
)

// view shows a message to filters. Only topics whose subscriptions have rules pay for it.
type view struct {
	payload *broker.Payload
	props   amqp.Properties
	user    map[string]any
}

func newView(p *broker.Payload) filter.Message {
	v := &view{payload: p}
	m, err := amqp.ParseMessage(p.Body)
	if err != nil {
		return v
	}
	v.props = m.Properties
	if user, err := m.ApplicationProperties(); err == nil {
		v.user = user
	}
	return v
}

// User implements filter.Message.
func (v *view) User(name string) (any, bool) {
	x, found := v.user[name]
	return x, found
}

// System implements filter.Message.
func (v *view) System(name string) (any, bool) {
	text := func(s string) (any, bool) { return s, s != "" }
	switch name {
	case "messageid":
		return v.payload.MessageID, v.payload.HasMessageID
	case "correlationid":
		if v.props.CorrelationID == nil {
			return nil, false
		}
		return fmt.Sprint(v.props.CorrelationID), true
	case "label", "subject":
		return text(v.props.Subject)
	case "to":
		return text(v.props.To)
	case "replyto":
		return text(v.props.ReplyTo)
	case "replytosessionid":
		return text(v.props.ReplyToGroupID)
	case "sessionid":
		return v.payload.SessionID, v.payload.HasSessionID
	case "contenttype":
		return text(v.props.ContentType)
	case "partitionkey":
		return v.payload.PartitionKey, v.payload.HasPartitionKey
	}
	return nil, false
}
