package engine

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/query"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// validator checks a collection's documents; nil checks nothing.
type validator struct {
	filter   bson.D
	matcher  *query.Matcher
	moderate bool // a document that did not fulfil it before need not after
}

// newValidator reads validator, validationLevel and validationAction of a collection's options.
func newValidator(options bson.D) (*validator, error) {
	filter, _ := value.Get(options, "validator")
	d, _ := filter.(bson.D)
	level, _ := value.Get(options, "validationLevel")
	action, _ := value.Get(options, "validationAction")
	switch {
	case level != nil && level != any("strict") && level != any("moderate") && level != any("off"):
		return nil, mongoerr.New(mongoerr.BadValue, "Enumeration value '%v' for field 'validationLevel' is not a valid value.", level)
	case action != nil && action != any("error") && action != any("warn"):
		return nil, mongoerr.New(mongoerr.BadValue, "Enumeration value '%v' for field 'validationAction' is not a valid value.", action)
	}
	matcher, err := query.Compile(d, &query.Env{})
	if err != nil {
		return nil, err
	}
	if len(d) == 0 || level == any("off") || action == any("warn") { // warn: the server only logs it
		return nil, nil
	}
	return &validator{d, matcher, level == any("moderate")}, nil
}

type bypass struct{}

// WithoutValidation implements bypassDocumentValidation: the validator does not check writes under
// the returned context.
func WithoutValidation(ctx context.Context) context.Context {
	return context.WithValue(ctx, bypass{}, true)
}

// validate refuses a document that the collection's validator does not accept; before is the one it
// takes the place of.
func (e *Engine) validate(ctx context.Context, c *Collection, before, after bson.D) error {
	if c.validator == nil || ctx.Value(bypass{}) != nil {
		return nil
	}
	if ok, err := c.validator.matcher.Match(after); ok || err != nil {
		return err
	}
	if before != nil && c.validator.moderate {
		if ok, err := c.validator.matcher.Match(before); !ok || err != nil {
			return err
		}
	}
	id, _ := value.Get(after, "_id")
	refused := mongoerr.New(mongoerr.DocumentValidationFailure, "Document failed validation")
	if e.old() {
		return refused
	}
	refused.Extra = bson.D{{Key: "errInfo", Value: bson.D{{Key: "failingDocumentId", Value: id}, {Key: "details", Value: query.Unmet(c.validator.filter, after)}}}}
	return refused
}

func (e *Engine) validateRaw(ctx context.Context, c *Collection, raw bson.Raw) error {
	if c.validator == nil {
		return nil
	}
	d, err := value.Decode(raw)
	if err != nil {
		return err
	}
	return e.validate(ctx, c, nil, d)
}
