package remote

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The examples of the documentation are as the protocol has them.
func TestTheExamplesOfThePageFollowTheProtocol(t *testing.T) {
	page, err := os.ReadFile("../../../docs/projection-program.md")
	require.NoError(t, err)
	var examples []string
	for i, part := range strings.Split(string(page), "```") {
		if i%2 == 1 && strings.HasPrefix(part, "json\n") {
			examples = append(examples, strings.TrimPrefix(part, "json\n"))
		}
	}
	require.Len(t, examples, 4, "a declaration, a call, an answer, events of a file")
	_, err = ReadDeclaration([]byte(examples[0]))
	require.NoError(t, err)
	events, err := ReadEvents([]byte(examples[1]))
	require.NoError(t, err)
	require.EqualValues(t, 700, events[0].Int("data.totalCents"))
	outcomes, err := readAnswer([]byte(examples[2]), 1, "5f0c…")
	require.NoError(t, err)
	require.Len(t, outcomes[0].Writes, 1)
}

// The OpenAPI document names every write, operator and condition, and no other operator.
func TestTheDocumentNamesEveryOperator(t *testing.T) {
	document, err := os.ReadFile("../../../docs/projection.openapi.yaml")
	require.NoError(t, err)
	for _, enumeration := range []string{
		"op: { enum: [" + strings.Join([]string{opSet, opSetOnInsert, opInc, opMul, opMin, opMax}, ", ") + "] }",
		"op: { const: " + opUnset, "op: { const: " + opTruncate, "op: { enum: [" + opAddToSet + ", " + opPull + "] }", "op: { const: " + opPullWhere,
		"write: { enum: [" + writeUpdate + ", " + writeUpdateExisting + "]", "write: { const: " + writeReplace, "write: { const: " + writeDelete,
		"is: { enum: [eq, lt, lte, gt, gte] }", "is: { const: " + isMissing, "protocol: { const: 1 }",
	} {
		require.Contains(t, string(document), enumeration)
	}
	require.Equal(t, 5, strings.Count(string(document), "            op: {"))
}
