package mongo

import (
	"encoding/base64"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/keystring"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// Azure DocumentDB, as far as its documentation and reports describe it; where they leave something
// open, the poorer variant: resume tokens that are not hex and do not sort, none before the first
// event or while idle, events without updateDescription, clusterTime and wallTime, updates with the
// document as it is now, no pre-images, five stages, no cluster time, no oplog to read, and an
// empty response at once whatever the client is prepared to wait. Source:
// https://learn.microsoft.com/azure/documentdb/change-streams. Its error codes are not known; these
// are MongoDB's.

// documentDBStages are the stages that it documents for a change stream.
var documentDBStages = []string{"$addFields", "$match", "$project", "$set", "$unset"}

// reduce checks what is asked of a stream against what the service has.
func (s *stream) reduce(rest bson.A) error {
	if s.before != "off" {
		return mongoerr.New(mongoerr.CommandNotSupported, "fullDocumentBeforeChange is not supported")
	}
	for _, item := range rest {
		if d, _ := item.(bson.D); len(d) == 1 && !slices.Contains(documentDBStages, d[0].Key) {
			return mongoerr.New(40324, "Unrecognized pipeline stage name: '%s'", d[0].Key)
		}
	}
	s.opaque = true
	if s.full == "default" {
		s.full = "updateLookup"
	}
	return nil
}

// tokenOf returns a token as the client sees it.
func (s *stream) tokenOf(t keystring.Token) bson.Raw {
	if !s.opaque {
		return t.Doc()
	}
	return value.Encode(bson.D{{Key: "_data", Value: base64.StdEncoding.EncodeToString(turned(t.Doc()))}})
}

// turned reverses bytes: the beginning of the result is no indication of order.
func turned(b []byte) []byte {
	out := slices.Clone(b)
	slices.Reverse(out)
	return out
}

// readToken returns the inverse of tokenOf.
func (s *stream) readToken(d bson.D) (bson.D, error) {
	if !s.opaque {
		return d, nil
	}
	data, _ := value.Get(d, "_data")
	text, _ := data.(string)
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, mongoerr.New(mongoerr.FailedToParse, "Invalid resume token")
	}
	token, err := value.Decode(turned(raw))
	if err != nil {
		return nil, mongoerr.New(mongoerr.FailedToParse, "Invalid resume token")
	}
	return token, nil
}

// poor leaves out of an event what the service does not give.
func poor(event bson.Raw) (bson.Raw, error) {
	d, err := value.Decode(event)
	if err != nil {
		return nil, err
	}
	return value.Encode(slices.DeleteFunc(d, func(e bson.E) bool {
		switch e.Key {
		case "updateDescription", "clusterTime", "wallTime", "lsid", "txnNumber":
			return true
		}
		return false
	})), nil
}
