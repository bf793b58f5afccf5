package servicebus

import (
	"errors"
	"net/url"
	"strings"
)

// connectionString has the parts of a connection string.
type connectionString struct {
	host     string // with the port where there is one
	emulator bool   // spoken to without TLS
	tokens   tokens
}

// errConnectionString does not quote the string, which is a secret.
var errConnectionString = errors.New("read the connection string: it is not one of Service Bus " +
	"(Endpoint=sb://…;SharedAccessKeyName=…;SharedAccessKey=…, or Endpoint=sb://…;SharedAccessSignature=…)")

// readConnectionString reads the same strings as the SDK, whose parser is not public.
func readConnectionString(text string) (connectionString, error) {
	fields := map[string]string{}
	for field := range strings.SplitSeq(text, ";") {
		name, value, _ := strings.Cut(field, "=")
		fields[strings.ToLower(strings.TrimSpace(name))] = value
	}
	endpoint, err := url.Parse(fields["endpoint"])
	if err != nil || endpoint.Host == "" {
		return connectionString{}, errConnectionString
	}
	read := connectionString{host: endpoint.Host, emulator: strings.EqualFold(fields["usedevelopmentemulator"], "true")}
	switch {
	case fields["sharedaccesssignature"] != "":
		read.tokens = signature(fields["sharedaccesssignature"])
	case fields["sharedaccesskeyname"] != "" && fields["sharedaccesskey"] != "":
		read.tokens = key{name: fields["sharedaccesskeyname"], secret: fields["sharedaccesskey"]}
	default:
		return connectionString{}, errConnectionString
	}
	return read, nil
}
