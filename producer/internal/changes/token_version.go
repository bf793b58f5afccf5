package changes

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// ErrTokenVersion reports that the deployment's resume tokens have another version than the
// stream's positions, and one of the two is unknown here.
var ErrTokenVersion = errors.New("the deployment's resume tokens have a version that this release cannot compare with the stream's positions: " +
	"use a newer release of the producer, or go back to the former version of MongoDB")

// A resume token is a sequence of KeyString values, in hex: cluster time, version, type, index in
// the transaction, whether the collection was gone, UUID of the collection; for an event its
// identifier, for a fragment its number; the end. The identifier is the document's key in version
// 1, and the operation and the document's key in version 2. These are the bytes of real servers'
// tokens; token_version_test.go has them.
const (
	tokenV1 = "2B02" // the versions as they appear in a token
	tokenV2 = "2B04"

	tokenNull   = 0x14
	tokenZero   = 0x29
	tokenOne    = 0x2B // an integer of one byte; each further byte increments the type
	tokenEight  = 0x32
	tokenString = 0x3C
	tokenObject = 0x46
	tokenBinary = 0x5A
	tokenFalse  = 0x6E
	tokenTrue   = 0x6F
	tokenEnd    = 0x04
)

// translateToken returns a token in the stream's token version, so that the same change has the
// same text no matter which server it is read from. operation is the event's operation, or empty if
// it is unknown: the text then sorts before that of the event. Errors: [ErrTokenVersion].
func translateToken(form, token, operation string) (string, error) {
	has := envelope.TokenForm(token)
	if has == form {
		return token, nil
	}
	raw, err := hex.DecodeString(token)
	if err != nil || !CanTranslate(has, form) {
		return "", fmt.Errorf("%w (the token has version %s, the positions have %s)", ErrTokenVersion, has, form)
	}
	t, ok := splitToken(raw)
	if !ok {
		return "", fmt.Errorf("%w (a token of version %s could not be read)", ErrTokenVersion, has)
	}
	if has == tokenV1 {
		t = t.toV2(operation)
	} else if t, ok = t.toV1(); !ok {
		return "", fmt.Errorf("%w (a token of version %s could not be read)", ErrTokenVersion, has)
	}
	return fmt.Sprintf("%X", t.join(form)), nil
}

// CanTranslate reports whether tokens of one version can be written in the other.
func CanTranslate(from, to string) bool {
	known := func(form string) bool { return form == tokenV1 || form == tokenV2 }
	return from == to || known(from) && known(to)
}

// OlderToken converts a resume token of version 2 into version 1, from which servers before 6.0
// resume at the same place. ok is false if it has another version.
func OlderToken(token bson.Raw) (older bson.Raw, ok bool) {
	text := envelope.TokenText(token)
	if envelope.TokenForm(text) != tokenV2 {
		return nil, false
	}
	text, err := translateToken(tokenV1, text, "")
	if err != nil {
		return nil, false
	}
	fields := bson.D{{Key: "_data", Value: text}}
	if _, bits, ok := token.Lookup("_typeBits").BinaryOK(); ok {
		if bits, ok = olderTypeBits(bits); !ok {
			return nil, false
		}
		fields = append(fields, bson.E{Key: "_typeBits", Value: bson.Binary{Data: bits}})
	}
	older, err = bson.Marshal(fields)
	return older, err == nil
}

// olderTypeBits removes the bit of the operation. The bits hold the types of the token's values, in
// their order, the first in the lowest bit: two for each number, one for each string. Up to seven
// bits are one byte; more are preceded by the number of bytes with its highest bit set. [MongoDB
// src/mongo/db/storage/key_string]
func olderTypeBits(bits []byte) (older []byte, ok bool) {
	const many = 0x80
	const before = 3 * 2 // the version, the type and the index in the transaction
	switch {
	case len(bits) == 1 && bits[0] < many:
	case len(bits) > 1 && bits[0] > many && int(bits[0]-many) == len(bits)-1:
		bits = bits[1:]
	default:
		return nil, false
	}
	older = bytes.Clone(bits)
	for i := range older { // everything after it moves down by one bit
		older[i] >>= 1
		if i+1 < len(bits) {
			older[i] |= bits[i+1] << 7
		}
	}
	const kept = 1<<before - 1
	older[0] = bits[0]&kept | older[0]&^kept
	if len(older) == 1 && older[0] < many {
		return older, true
	}
	return append([]byte{many | byte(len(older))}, older...), true
}

// tokenParts holds a token's bytes by the parts that this package needs.
type tokenParts struct {
	time       []byte // the cluster time
	place      []byte // from the type up to the UUID
	uuid       []byte // a UUID, a null, or nothing
	identifier []byte // the rest, without the end mark
}

// splitToken parses a token of version 1 or 2. ok is false for anything else.
func splitToken(raw []byte) (t tokenParts, ok bool) {
	const head = 9 + 2 // the cluster time and the version
	if len(raw) <= head || raw[len(raw)-1] != tokenEnd {
		return t, false
	}
	t.time = raw[:9]
	rest := raw[head : len(raw)-1]
	at := 0
	for range 2 { // the type, and the index in the transaction
		n, ok := integerLength(rest[at:])
		if !ok {
			return t, false
		}
		at += n
	}
	if at == len(rest) || rest[at] != tokenFalse && rest[at] != tokenTrue {
		return t, false
	}
	t.place, rest = rest[:at+1], rest[at+1:]
	n := 0
	if len(rest) > 0 {
		switch rest[0] {
		case tokenNull:
			n = 1
		case tokenBinary:
			n = 3 + 16 // with its length and its subtype
		default:
			return t, false
		}
	}
	if len(rest) < n {
		return t, false
	}
	t.uuid, t.identifier = rest[:n], rest[n:]
	return t, true
}

// integerLength returns how many bytes the integer at the start of b takes.
func integerLength(b []byte) (n int, ok bool) {
	switch {
	case len(b) == 0:
		return 0, false
	case b[0] == tokenZero:
		return 1, true
	case b[0] >= tokenOne && b[0] <= tokenEight:
		n = 2 + int(b[0]-tokenOne)
		return n, len(b) >= n
	}
	return 0, false
}

func (t tokenParts) join(form string) []byte {
	version, _ := hex.DecodeString(form)
	return append(bytes.Join([][]byte{t.time, version, t.place, t.uuid, t.identifier}, nil), tokenEnd)
}

// isHighWaterMark reports whether a token is a high-water mark. An unreadable token is taken for an
// event's.
func isHighWaterMark(token string) bool {
	raw, err := hex.DecodeString(token)
	if err != nil {
		return false
	}
	parts, ok := splitToken(raw)
	return ok && !parts.isEvent()
}

// isEvent reports whether the token belongs to an event rather than being a high-water mark.
func (t tokenParts) isEvent() bool { return t.place[0] != tokenZero }

// The beginnings of the two fields of a version 2 identifier, each with the type of its value and
// its name; the value follows.
var (
	fieldOperation = append([]byte{tokenObject, tokenString}, "operationType\x00"...)
	fieldKey       = append([]byte{tokenObject}, "documentKey\x00"...)
)

// toV1 removes the operation. An event without a document has no identifier in version 1. ok is
// false if the identifier is malformed.
func (t tokenParts) toV1() (v1 tokenParts, ok bool) {
	if !t.isEvent() {
		t.uuid = nil // version 1 omits an absent UUID
		return t, true
	}
	rest, found := bytes.CutPrefix(t.identifier, fieldOperation)
	if !found {
		return t, false
	}
	_, rest, found = bytes.Cut(rest, []byte{0}) // the operation's name, which contains no zero
	if !found {
		return t, false
	}
	key, found := bytes.CutPrefix(rest, fieldKey)
	if !found {
		t.identifier = nil
		return t, true
	}
	// After the key come the end of the object that held it, and the number of a fragment.
	end := len(key) - 1 - fragmentLength(key)
	if end < 2 || key[0] != tokenObject || key[end-1] != 0 || key[end] != 0 {
		return t, false
	}
	t.identifier = append(bytes.Clone(key[:end]), key[end+1:]...)
	return t, true
}

// toV2 adds the operation.
func (t tokenParts) toV2(operation string) tokenParts {
	if !t.isEvent() {
		t.uuid = []byte{tokenNull}
		return t
	}
	b := append(bytes.Clone(fieldOperation), tokenString)
	b = append(append(b, operation...), 0)
	fragment := t.identifier
	if len(t.identifier) > 0 {
		end := len(t.identifier) - fragmentLength(t.identifier)
		b = append(append(b, fieldKey...), t.identifier[:end]...)
		fragment = t.identifier[end:]
	}
	t.identifier = append(append(b, 0), fragment...)
	return t
}

// fragmentLength returns how many bytes at the end of an identifier are the number of a fragment.
// An identifier without one ends in the zero that ends an object.
func fragmentLength(identifier []byte) int {
	n := len(identifier)
	switch {
	case n >= 2 && identifier[n-1] == tokenZero:
		return 1
	case n >= 3 && identifier[n-2] == tokenOne && identifier[n-1] != 0:
		return 2
	}
	return 0
}

// maxPosition is the size limit of a position in bytes, with room for the suffix of afterPosition:
// a message holds 8 KB of it.
const maxPosition = 8<<10 - 64

// capPosition returns a position of at most maxPosition bytes. A longer one is replaced by its
// beginning, which decides its order, and a hash of the whole, which distinguishes it from others.
// It sorts before the original text.
func capPosition(text string) string {
	if len(text) <= maxPosition {
		return text
	}
	end := fmt.Sprintf(".%X", sha256.Sum256([]byte(text)))
	return text[:maxPosition-len(end)] + end
}

// afterPosition returns position if it sorts after before; otherwise it returns the smallest text
// that does. Two shards may commit at the same cluster time, and the stream's token version or
// maxPosition may drop what the server ordered them by.
func afterPosition(position, before string) string {
	const time = 18 // digits of the cluster time
	if position > before || len(before) < time || !strings.HasPrefix(position, before[:time]) {
		return position
	}
	return before + "0"
}

// Translated reports whether a position has another version than the token that it was made of.
func Translated(position, token string) bool {
	form := envelope.TokenForm(position)
	return form != "" && form != envelope.TokenForm(token)
}

// PositionOf returns the position that a leader would assign to a token in a stream that has come
// so far. Errors: [ErrTokenVersion].
func PositionOf(token string, stream checkpoint.Progress) (string, error) {
	form := stream.Form()
	if form == "" || !envelope.Sortable(token) {
		return token, nil
	}
	text, err := translateToken(form, token, "")
	return capPosition(text), err
}
