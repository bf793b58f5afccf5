package bicep

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const sample = `// a comment with { and '
targetScope = 'resourceGroup'

@secure()
@description('It\'s secret')
param password string = ''
param names string[]

var role = subscriptionResourceId('Microsoft.Authorization/roleDefinitions', 'abc') // why
var both = empty(names)
  ? { a: 'x' }
  : { b: 'y' }

#disable-next-line some-rule
resource app 'Microsoft.App/containerApps@2025-07-01' = if (!empty(names)) {
  name: 'ca-${uniqueString('a', { b: 'c' }.b)}'
  properties: {
    env: concat(
      [
        { name: 'A', value: password } // one line
        {
          name: 'B'
          secretRef: 'b'
        }
      ],
      both ? [] : [{ name: 'C', value: '1' }, { name: 'D', value: '2' }]
    )
    text: '''
as 'is' ${here}'''
  }
}

resource many 'T@1' = [
  for (n, i) in names: {
    name: n
  }
]

resource vault 'V@1' existing = {
  name: 'v'

  resource secret 'secrets' existing = { name: 's' }
}

output id string = app.id
`

func TestParseReadsTheStructure(t *testing.T) {
	f, err := Parse("sample.bicep", sample)
	require.NoError(t, err)

	password, ok := f.Find("param", "password")
	require.True(t, ok)
	require.True(t, password.Secure())
	require.Equal(t, "string", password.Type)
	require.True(t, password.HasValue)
	names, _ := f.Find("param", "names")
	require.False(t, names.HasValue)
	require.False(t, names.Secure())
	require.Equal(t, "string[]", names.Type)

	app, _ := f.Find("resource", "app")
	require.Equal(t, "Microsoft.App/containerApps@2025-07-01", app.Type)
	require.Equal(t, "( ! empty ( names ) )", app.Condition)
	require.Equal(t, 15, app.Line)
	properties, _ := app.Value.Field("properties")
	env, _ := properties.Field("env")
	var set []string
	env.Walk(func(_ []string, v Value) {
		if name, ok := v.Field("name"); ok {
			set = append(set, name.Text)
		}
	})
	require.Equal(t, []string{"A", "B", "C", "D"}, set)
	verbatim, _ := properties.Field("text")
	require.Equal(t, "\nas 'is' ${here}", verbatim.Text)

	both, _ := f.Find("var", "both")
	require.Len(t, both.Value.Parts, 2)
	many, _ := f.Find("resource", "many")
	name, ok := many.Value.Field("name")
	require.True(t, ok, "the loop's body is the value")
	require.Equal(t, "n", name.Text)
	vault, _ := f.Find("resource", "vault")
	require.True(t, vault.Existing)
	require.Len(t, vault.Value.Nested, 1)
	id, _ := f.Find("output", "id")
	require.Equal(t, "app . id", id.Value.Text)
}

func TestParseReportsWhatItCannotRead(t *testing.T) {
	for source, want := range map[string]string{
		"param":                          "line 1: expected a name",
		"import 'x'":                     "line 1: expected a declaration",
		"var a = {\n b 1\n}":             "line 2: expected :",
		"var a = {\n b: 1\n":             "line 3: expected a field's name",
		"var a = [\n 1\n)":               "line 3: expected ]",
		"\nvar a = 'b":                   "line 2: unexpected",
		"var a = '\\q'":                  "unexpected",
		"var a = `b`":                    "unexpected",
		"/* never":                       "expected a declaration",
		"resource r 'T@1' = if x { a: 1": "expected (",
	} {
		_, err := Parse("x.bicep", source)
		require.ErrorContains(t, err, want, source)
		require.ErrorContains(t, err, "x.bicep", source)
	}
}
