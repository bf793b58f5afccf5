package envelope

import (
	"mime"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// UnknownEncoding returns the content type of a message that a newer version of Sluice encoded in a
// form that this version cannot read: it is one of Sluice's own types, or of CloudEvents'. Such a
// message may hold events of any aggregate, so a reader must neither settle it nor apply what
// follows it in its session. A message of any other content type is not Sluice's.
func UnknownEncoding(m *azservicebus.ReceivedMessage) (contentType string, unknown bool) {
	if m.ContentType == nil || *m.ContentType == string(JSON) || *m.ContentType == string(BSON) {
		return "", false // almost every message: nothing is to be parsed
	}
	media, _, err := mime.ParseMediaType(*m.ContentType)
	if err != nil || !strings.HasPrefix(media, "application/vnd.sluice.") && !strings.HasPrefix(media, "application/cloudevents") {
		return "", false
	}
	_, row := eventTypes[Format(media)]
	_, pack := packed(m) // without its list, it does not name the aggregates that it holds events of
	return media, !row && !pack && media != claimCheck
}
