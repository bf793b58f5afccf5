//go:build !race || go1.27

package wire_test

// clientDifferences are the differences between our frames and the recorded ones of the official
// clients of other languages, in groups with a reason each. A field is written as "clients:
// operation: path".
var clientDifferences = []struct {
	reason string
	// asGo requires that our frames match what azservicebus sends in the same run.
	asGo   bool
	fields []string
}{
	{
		reason: "a default of AMQP that they write out",
		fields: []string{
			"java: attach receiver from a session of an entity: incomplete-unsettled",
			"java: attach receiver from a session of an entity: source.durable",
			"java: attach receiver from a session of an entity: source.dynamic",
			"java: attach receiver from a session of an entity: source.expiry-policy",
			"java: attach receiver from a session of an entity: source.timeout",
			"java: attach sender to $cbs: incomplete-unsettled",
			"java: attach sender to $management: incomplete-unsettled",
			"java: attach sender to an entity: incomplete-unsettled",
			"java,javascript,python: disposition 0x25: settled",
			"java,python: open: channel-max",
			"java,javascript,python: transfer sender to an entity: settled",
			"javascript,python: transfer sender to $cbs put-token: more",
			"javascript,python: transfer sender to $management com.microsoft:peek-message: more",
			"javascript,python: transfer sender to $management com.microsoft:renew-session-lock: more",
			"javascript,python: transfer sender to an entity: more",
		},
	},
	{
		reason: "the official clients differ from one another here; ours sends what the Go client sends",
		asGo:   true,
		fields: []string{
			"java,javascript,python: attach receiver from a session of an entity: snd-settle-mode",
			"java,javascript,python: attach receiver from a session of an entity: source.filter.com.microsoft:session-filter described",
			"java,javascript,python: attach receiver from a session of an entity: source.filter.com.microsoft:session-filter is described by",
			"java,javascript,python: attach receiver from a session of an entity: target.address",
			"java,python: attach sender to $cbs: rcv-settle-mode",
			"java,python: attach sender to $cbs: snd-settle-mode",
			"java,python: attach sender to $management: rcv-settle-mode",
			"java,python: attach sender to $management: snd-settle-mode",
			"java,javascript,python: attach sender to an entity: snd-settle-mode",
			"java,javascript,python: attach sender to an entity: source.address",
			"java,javascript,python: begin: handle-max",
			"java,javascript,python: begin: outgoing-window",
			"java,javascript: disposition 0x24: last",
			"java,javascript,python: disposition 0x24: settled",
			"java,javascript: disposition 0x25: last",
			"java,javascript,python: flow of a session",
			"java,javascript,python: flow receiver from $cbs: outgoing-window",
			"java,javascript,python: flow receiver from $management: outgoing-window",
			"java,javascript,python: flow receiver from a session of an entity: outgoing-window",
			"java: sasl-init: initial-response",
			"java,javascript,python: transfer sender to $cbs put-token: application-properties.expiration",
			"java,python: transfer sender to $cbs put-token: properties.message-id",
			"java,javascript,python: transfer sender to $cbs put-token: settled",
			"java,python: transfer sender to $management com.microsoft:peek-message: properties.message-id",
			"java,javascript,python: transfer sender to $management com.microsoft:peek-message: settled",
			"java,python: transfer sender to $management com.microsoft:renew-session-lock: properties.message-id",
			"java,javascript,python: transfer sender to $management com.microsoft:renew-session-lock: settled",
			"javascript: attach receiver from $cbs: rcv-settle-mode",
			"javascript,python: attach receiver from $cbs: snd-settle-mode",
			"javascript: attach receiver from $cbs: target.address",
			"javascript: attach receiver from $management: rcv-settle-mode",
			"javascript,python: attach receiver from $management: snd-settle-mode",
			"javascript,python: attach sender to an entity: rcv-settle-mode",
			"javascript,python: open: idle-time-out",
			"javascript,python: open: max-frame-size",
			"javascript,python: sasl-init: hostname",
			"javascript: transfer sender to $cbs put-token: properties.to",
			"python: attach receiver from a session of an entity: max-message-size",
			"python: attach sender to $cbs: source.address",
			"python: attach sender to $management: source.address",
			"python: attach sender to an entity: max-message-size",
			"python: disposition 0x25: state.error.description",
			"python: disposition 0x25: state.error.info.DeadLetterErrorDescription key",
			"python: disposition 0x25: state.error.info.DeadLetterReason key",
			"python: transfer sender to $cbs put-token: application-properties.type",
			"python: transfer sender to $cbs put-token: properties.reply-to",
		},
	},
	{
		reason: "the name by which the Go client sends the time that the broker has; .NET, Java and Python send it as com.microsoft:server-timeout, JavaScript sends none",
		asGo:   true,
		fields: []string{
			"java,python: transfer sender to $management com.microsoft:peek-message: application-properties.com.microsoft:server-timeout",
			"java,javascript,python: transfer sender to $management com.microsoft:peek-message: application-properties.server-timeout",
			"java,python: transfer sender to $management com.microsoft:renew-session-lock: application-properties.com.microsoft:server-timeout",
			"java,javascript,python: transfer sender to $management com.microsoft:renew-session-lock: application-properties.server-timeout",
		},
	},
	{
		reason: "a hint of one client, which the Go client does not send",
		asGo:   true,
		fields: []string{
			"javascript: transfer sender to $management com.microsoft:peek-message: application-properties.com.microsoft:tracking-id",
			"javascript: transfer sender to $management com.microsoft:renew-session-lock: application-properties.com.microsoft:tracking-id",
			"python: transfer sender to $management com.microsoft:peek-message: application-properties.type",
			"python: transfer sender to $management com.microsoft:renew-session-lock: application-properties.type",
			"java: attach receiver from a session of an entity: properties.com.microsoft:entity-type",
			"java,javascript,python: attach receiver from a session of an entity: properties.com.microsoft:receiver-name",
			"java: attach sender to an entity: properties.com.microsoft:timeout",
		},
	},
	{
		reason: timeoutReason,
		fields: []string{
			"python: attach receiver from a session of an entity: properties.com.microsoft:timeout",
		},
	},
	{
		reason: versionReason,
		fields: []string{
			"java,javascript,python: open: properties.version",
		},
	},
	{
		reason: linkReason,
		fields: []string{
			"python: transfer sender to $management com.microsoft:peek-message: application-properties.associated-link-name",
		},
	},
	{
		reason: "what describes a batch as a whole: Java adds a user id, and Java and Python copy none of the first message's properties",
		fields: []string{
			"java: transfer sender to an entity: data.properties.user-id",
			"java,python: transfer sender to an entity: properties.content-type",
			"java,python: transfer sender to an entity: properties.subject",
		},
	},
}
