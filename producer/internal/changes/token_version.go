package changes

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// ErrTokenForm: the deployment's resume tokens have another form than the stream's positions, and one of the two is not known here.
var ErrTokenForm = errors.New("the deployment's resume tokens have a form that this version cannot compare with the stream's positions: " +
	"use a newer version, or go back to the former one of MongoDB")

// A resume token is a sequence of KeyString values, in hex: cluster time, version, type, index in the transaction, whether the
// collection was gone, UUID of the collection; for an event its identifier, for a fragment its number; the end. The identifier is the
// document's key in version 1, and the operation and the document's key in version 2. What is written here are the bytes of real
// servers' tokens; token_version_test.go has them.
const (
	formV1 = "2B02" // the versions as they stand in a token
	formV2 = "2B04"

	tokenNull   = 0x14
	tokenZero   = 0x29
	tokenOne    = 0x2B // an integer of one byte; of each further one the type is one more
	tokenEight  = 0x32
	tokenString = 0x3C
	tokenObject = 0x46
	tokenBinary = 0x5A
	tokenFalse  = 0x6E
	tokenTrue   = 0x6F
	tokenEnd    = 0x04
)

// inForm writes a token of one version as the other would be, in the form of the stream: the same change has the same text then,
// whichever server it is read from. operation is the event's, and empty where there is none to tell: such a text stands before that
// of the event. Errors: [ErrTokenForm].
func inForm(form, token, operation string) (string, error) {
	has := envelope.TokenForm(token)
	if has == form {
		return token, nil
	}
	raw, err := hex.DecodeString(token)
	if err != nil || !Translates(has, form) {
		return "", fmt.Errorf("%w (the token has the form %s, the positions have %s)", ErrTokenForm, has, form)
	}
	t, ok := splitToken(raw)
	if !ok {
		return "", fmt.Errorf("%w (a token of the form %s could not be read)", ErrTokenForm, has)
	}
	if has == formV1 {
		t = t.toV2(operation)
	} else if t, ok = t.toV1(); !ok {
		return "", fmt.Errorf("%w (a token of the form %s could not be read)", ErrTokenForm, has)
	}
	return strings.ToUpper(hex.EncodeToString(t.join(form))), nil
}

// Translates says whether tokens of one form can be written in the other.
func Translates(from, to string) bool {
	known := func(form string) bool { return form == formV1 || form == formV2 }
	return from == to || known(from) && known(to)
}

// OlderToken returns a resume token of version 2 as version 1, which servers before 6.0 resume from: it stands for the same place. ok is
// false if it has another form.
func OlderToken(token bson.Raw) (older bson.Raw, ok bool) {
	text := envelope.TokenText(token)
	if envelope.TokenForm(text) != formV2 {
		return nil, false
	}
	text, err := inForm(formV1, text, "")
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

// olderTypeBits leaves out the bit of the operation. The bits tell the types that values of a token had, in their order, the first in the
// lowest bit: two of each number, one of each string. Up to seven of them are one byte; before more of them stands the number of bytes, with
// its highest bit set. [MongoDB src/mongo/db/storage/key_string]
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
	for i := range older { // everything behind moves down by one
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

// tokenParts are a token's bytes, by what this package tells apart.
type tokenParts struct {
	time       []byte // the cluster time
	place      []byte // from the type to before the UUID
	uuid       []byte // a UUID, a null, or nothing
	identifier []byte // what follows, without the end mark
}

// splitToken reads a token of version 1 or 2. ok is false for anything else.
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

// integerLength is how many bytes the integer takes that b begins with.
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

// isMark says that a token is a high-water mark's. One that cannot be read is taken for an event's.
func isMark(token string) bool {
	raw, err := hex.DecodeString(token)
	if err != nil {
		return false
	}
	parts, ok := splitToken(raw)
	return ok && !parts.isEvent()
}

// isEvent: the other tokens are high-water marks, of a moment before its events.
func (t tokenParts) isEvent() bool { return t.place[0] != tokenZero }

// The beginnings of the two fields of an identifier of version 2, each with the type of its value and its name, then the value.
var (
	fieldOperation = append([]byte{tokenObject, tokenString}, "operationType\x00"...)
	fieldKey       = append([]byte{tokenObject}, "documentKey\x00"...)
)

// toV1 leaves the operation out. An event without a document keeps nothing in its identifier, as in version 1. ok is false for an
// identifier that is not one.
func (t tokenParts) toV1() (v1 tokenParts, ok bool) {
	if !t.isEvent() {
		t.uuid = nil // version 1 leaves out what there is not
		return t, true
	}
	rest, found := bytes.CutPrefix(t.identifier, fieldOperation)
	if !found {
		return t, false
	}
	_, rest, found = bytes.Cut(rest, []byte{0}) // the operation's name, which has no zero in it
	if !found {
		return t, false
	}
	key, found := bytes.CutPrefix(rest, fieldKey)
	if !found {
		t.identifier = nil
		return t, true
	}
	// Behind the key is the end of the object that held it, then the number of a fragment.
	end := len(key) - 1 - fragmentLength(key)
	if end < 2 || key[0] != tokenObject || key[end-1] != 0 || key[end] != 0 {
		return t, false
	}
	t.identifier = append(bytes.Clone(key[:end]), key[end+1:]...)
	return t, true
}

// toV2 puts the operation in.
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

// fragmentLength is how many bytes at the end of an identifier are the number of a fragment; an identifier without one ends in the zero
// that ends an object.
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

// maxPosition bounds a position, in bytes, with room for what puts it behind another: a message holds 8 KB of it.
const maxPosition = 8<<10 - 64

// bounded is a position of at most maxPosition bytes: a longer one keeps its beginning, which decides its order, and a hash of the
// whole, which tells it from others. It sorts before the text that it stands for.
func bounded(text string) string {
	if len(text) <= maxPosition {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	end := "." + strings.ToUpper(hex.EncodeToString(sum[:]))
	return text[:maxPosition-len(end)] + end
}

// behind is a position where the server's order puts it: behind the one before, also where that has the greater text. That can be
// where two shards committed in one cluster time, and the stream's form or a bound leaves out what the server ordered them by.
func behind(position, before string) string {
	const time = 18 // digits, of the cluster time
	if position > before || len(before) < time || !strings.HasPrefix(position, before[:time]) {
		return position
	}
	return before + "0"
}

// Translated says that a position has another form than the token that it was made of.
func Translated(position, token string) bool {
	form := envelope.TokenForm(position)
	return form != "" && form != envelope.TokenForm(token)
}

// PositionOf is the position of a token in a stream whose checkpoint has another position: what a leader would write there. Errors:
// [ErrTokenForm].
func PositionOf(token, checkpoint string) (string, error) {
	form := envelope.TokenForm(checkpoint)
	if form == "" || !envelope.Sortable(token) {
		return token, nil
	}
	text, err := inForm(form, token, "")
	return bounded(text), err
}
