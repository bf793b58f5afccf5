package telemetry

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strconv"

	"github.com/sluice-cdc/sluice/shared/terminal"
)

// forPeople returns an attribute as text shows it: a short time, identifiers shortened, and a
// status as attributes of its own, without those that are not known.
func forPeople(groups []string, a slog.Attr) slog.Attr {
	switch {
	case a.Key == slog.TimeKey && len(groups) == 0 && a.Value.Kind() == slog.KindTime:
		return slog.String(a.Key, a.Value.Time().Format("15:04:05.000"))
	case (a.Key == KeyPosition || a.Key == KeyMessageID) && a.Value.Kind() == slog.KindString:
		return slog.String(a.Key, terminal.Shorten(a.Value.String()))
	case a.Value.Kind() != slog.KindAny:
		return a
	}
	if _, isError := a.Value.Any().(error); isError {
		return a
	}
	text, err := json.Marshal(a.Value.Any())
	if err != nil || len(text) == 0 || text[0] != '{' {
		return a
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if value, known := attribute(decoder); known {
		return slog.Attr{Key: a.Key, Value: value}
	}
	return slog.Attr{}
}

// attribute returns the next JSON value of a decoder, objects and arrays as groups; known is false
// for what is empty, null, or -1, which stands for a duration that is not known.
func attribute(decoder *json.Decoder) (value slog.Value, known bool) {
	token, err := decoder.Token()
	if err != nil {
		return value, false
	}
	switch token := token.(type) {
	case json.Delim:
		var attributes []slog.Attr
		for i := 0; decoder.More(); i++ {
			key := strconv.Itoa(i)
			if token == '{' {
				name, err := decoder.Token()
				if err != nil {
					return value, false
				}
				key, _ = name.(string)
			}
			if one, ok := attribute(decoder); ok {
				attributes = append(attributes, slog.Attr{Key: key, Value: one})
			}
		}
		_, err := decoder.Token() // the end of it
		return slog.GroupValue(attributes...), err == nil && len(attributes) > 0
	case json.Number:
		return slog.StringValue(token.String()), token != "-1"
	case string:
		return slog.StringValue(token), token != ""
	case bool:
		return slog.BoolValue(token), true
	}
	return value, false
}
