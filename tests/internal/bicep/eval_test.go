package bicep

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const conditions = `
param sku string
param units int = 1
param mail string = ''
var premium = sku == 'Premium'
var spread = premium ? min(units, 4) : 1
var list = [1, 2]
`

func TestConditionsAreEvaluated(t *testing.T) {
	f, err := Parse("conditions.bicep", conditions)
	require.NoError(t, err)
	given := map[string]any{"sku": "Premium", "units": 8, "vault.outputs.name": "kv"}
	for expression, want := range map[string]any{
		"premium && units > 1":                     true,
		"!premium || units <= 7":                   false,
		"(premium || false) && !empty(mail)":       false,
		"empty(mail) ? 'none' : mail":              "none",
		"spread":                                   4,
		"max(spread, 9)":                           9,
		"premium ? (units > 9 ? 'a' : 'b') : null": "b",
		"vault.outputs.name == 'kv'":               true,
		"null":                                     nil,
		"units > 0 ? '${sku}-v${units}' : ''":      "Premium-v8",
		"replace('ca-x', 'ca-', 'ca-v${units}-')":  "ca-v8-x",
	} {
		got, err := f.EvalValue(Value{Text: expression}, given)
		require.NoError(t, err, expression)
		require.Equal(t, want, got, expression)
	}
	got, err := f.EvalValue(Value{Text: "units"}, nil)
	require.NoError(t, err)
	require.Equal(t, 1, got, "a parameter's default")
}

func TestUnsupportedExpressionsAreErrors(t *testing.T) {
	f, err := Parse("conditions.bicep", conditions)
	require.NoError(t, err)
	for _, expression := range []string{
		"sku", "units.x", "list", "concat(mail, mail)", "units && true", "!units", "mail > 1", "units ? 1 : 2", "(units", "units units", "true ? 1", "min(mail, 1)", "'a${nothing}'",
	} {
		_, err := f.EvalValue(Value{Text: expression}, nil)
		require.Error(t, err, expression)
	}
}
