package emulator

import (
	"fmt"
	"strconv"
	"strings"
)

// portsForm is the end of each error about ports.
const portsForm = "write standard, or a list such as mongodb=27017,servicebus=5672,admin=5300,tls=5671,443,blob=10000"

// ParsePorts reads ports from a command line: "standard", which is [StandardPorts], or a list such
// as mongodb=27017,servicebus=5672. TLS may have several, as in tls=5671,443. A server that is not
// named gets a free port; an empty text names none.
func ParsePorts(text string) (Ports, error) {
	var p Ports
	if text == "" {
		return p, nil
	}
	if text == "standard" {
		return StandardPorts(), nil
	}
	ports := map[string]*int{"mongodb": &p.Mongo, "servicebus": &p.ServiceBus, "admin": &p.Administration, "tls": nil, "blob": &p.Blob}
	takenBy := map[int]string{}
	before := ""
	for part := range strings.SplitSeq(text, ",") {
		name, number, named := strings.Cut(strings.TrimSpace(part), "=")
		if !named && before == "tls" {
			name, number = before, name
		}
		before = name
		port, known := ports[name]
		if !known {
			return p, fmt.Errorf("%q: there is no server of that name: %s", part, portsForm)
		}
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || n > 65535 {
			return p, fmt.Errorf("%q: a port is a number from 1 to 65535: %s", part, portsForm)
		}
		if other := takenBy[n]; other != "" {
			return p, fmt.Errorf("%q: %s has that port already: %s", part, other, portsForm)
		}
		takenBy[n] = name
		if name == "tls" {
			p.TLS = append(p.TLS, n)
		} else {
			*port = n
		}
	}
	return p, nil
}
