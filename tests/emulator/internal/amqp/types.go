package amqp

import (
	"fmt"
	"time"
)

// Format codes of the primitive types [AMQP-1.6].
const (
	codeDescribed  = 0x00
	codeNull       = 0x40
	codeTrue       = 0x41
	codeFalse      = 0x42
	codeUint0      = 0x43
	codeUlong0     = 0x44
	codeList0      = 0x45
	codeUbyte      = 0x50
	codeByte       = 0x51
	codeSmallUint  = 0x52
	codeSmallUlong = 0x53
	codeSmallInt   = 0x54
	codeSmallLong  = 0x55
	codeBool       = 0x56
	codeUshort     = 0x60
	codeShort      = 0x61
	codeUint       = 0x70
	codeInt        = 0x71
	codeFloat      = 0x72
	codeChar       = 0x73
	codeDecimal32  = 0x74
	codeUlong      = 0x80
	codeLong       = 0x81
	codeDouble     = 0x82
	codeTimestamp  = 0x83
	codeDecimal64  = 0x84
	codeDecimal128 = 0x94
	codeUUID       = 0x98
	codeBin8       = 0xa0
	codeStr8       = 0xa1
	codeSym8       = 0xa3
	codeBin32      = 0xb0
	codeStr32      = 0xb1
	codeSym32      = 0xb3
	codeList8      = 0xc0
	codeMap8       = 0xc1
	codeList32     = 0xd0
	codeMap32      = 0xd1
	codeArray8     = 0xe0
	codeArray32    = 0xf0
)

// Symbol is an AMQP symbol: a string of ASCII used for names the protocol defines.
type Symbol string

// UUID is an AMQP uuid in network byte order (RFC 4122).
type UUID [16]byte

// String returns the canonical 8-4-4-4-12 form.
func (u UUID) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

// Described is a value with a descriptor [AMQP-1.3.1].
type Described struct {
	Descriptor any
	Value      any
}

// Raw is a primitive this package carries without interpreting it (char and the decimals).
type Raw struct {
	Code  byte
	Bytes string
}

// Array is an AMQP array; all elements have one type [AMQP-1.6.24].
type Array []any

// Error is the AMQP error type, carried by detach, end, close and the rejected outcome.
type Error struct {
	Condition   Symbol
	Description string
	Info        map[string]any
}

// Error implements error.
func (e *Error) Error() string { return string(e.Condition) + ": " + e.Description }

// Conditions used by this package [AMQP-2.8.15], [AMQP-2.8.16], [AMQP-2.8.17], [AMQP-2.8.18].
const (
	CondDecodeError         Symbol = "amqp:decode-error"
	CondInternalError       Symbol = "amqp:internal-error"
	CondInvalidField        Symbol = "amqp:invalid-field"
	CondNotAllowed          Symbol = "amqp:not-allowed"
	CondNotFound            Symbol = "amqp:not-found"
	CondNotImplemented      Symbol = "amqp:not-implemented"
	CondResourceLimit       Symbol = "amqp:resource-limit-exceeded"
	CondUnauthorized        Symbol = "amqp:unauthorized-access"
	CondConnectionForced    Symbol = "amqp:connection:forced"
	CondWindowViolation     Symbol = "amqp:session:window-violation"
	CondErrantLink          Symbol = "amqp:session:errant-link"
	CondHandleInUse         Symbol = "amqp:session:handle-in-use"
	CondUnattachedHandle    Symbol = "amqp:session:unattached-handle"
	CondDetachForced        Symbol = "amqp:link:detach-forced"
	CondMessageSizeExceeded Symbol = "amqp:link:message-size-exceeded"
	CondTransferLimit       Symbol = "amqp:link:transfer-limit-exceeded"
)

// timestamps are milliseconds since the Unix epoch [AMQP-1.6.17].
func timestampOf(t time.Time) int64 { return t.UnixMilli() }
