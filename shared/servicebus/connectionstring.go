package servicebus

import (
	"errors"
	"net/url"
	"strings"
)

// errConnectionString does not quote the string, which is a secret.
var errConnectionString = errors.New("read the connection string: it is not one of Service Bus " +
	"(Endpoint=sb://…;SharedAccessKeyName=…;SharedAccessKey=…, or Endpoint=sb://…;SharedAccessSignature=…)")

// readConnectionString reads the same strings as the SDK, whose parser is not public. Connections
// to an emulator have no TLS.
func (n *Namespace) readConnectionString(text string) error {
	fields := map[string]string{}
	for field := range strings.SplitSeq(text, ";") {
		name, value, _ := strings.Cut(field, "=")
		fields[strings.ToLower(strings.TrimSpace(name))] = value
	}
	endpoint, err := url.Parse(fields["endpoint"])
	if err != nil || endpoint.Host == "" {
		return errConnectionString
	}
	n.host = endpoint.Host
	if strings.EqualFold(fields["usedevelopmentemulator"], "true") {
		n.scheme = "amqp"
	}
	switch {
	case fields["sharedaccesssignature"] != "":
		n.tokens = signature(fields["sharedaccesssignature"])
	case fields["sharedaccesskeyname"] != "" && fields["sharedaccesskey"] != "":
		n.tokens = key{name: fields["sharedaccesskeyname"], secret: fields["sharedaccesskey"]}
	default:
		return errConnectionString
	}
	return nil
}
