package projection_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/projector/projection/projectiontest"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

func mirror(t *testing.T, o projection.MirrorOptions) projection.Mirror {
	t.Helper()
	m, err := projection.NewMirror(o)
	require.NoError(t, err)
	return m
}

func TestMirrorKeepsSelectedFields(t *testing.T) {
	m := mirror(t, projection.MirrorOptions{Collection: "slim", Fields: []string{"name", "tags"}})
	require.Equal(t, "mirror_slim", m.Name())
	described := projectiontest.Update("a", nil, `{"_id": 1}`)
	described.Body = change(t, envelope.Update, `{"documentKey": {"_id": 1}, "updateDescription": {
		"updatedFields": {"name.last": "Lee", "secret": 2, "tags.0": "z"}, "removedFields": ["secret.x", "name.first"],
		"truncatedArrays": [{"field": "tags", "newSize": 1}, {"field": "secrets", "newSize": 0}]}}`).Body
	projectiontest.Check(t, m, []projection.Event{
		projectiontest.Insert("a", `{"_id": 1, "secret": 1, "name": {"first": "Ann"}, "tags": ["x", "y"]}`),
		projectiontest.Insert("b", `{"_id": 2, "secret": 1}`),
		described,
		projectiontest.Replace("b", nil, `{"_id": 2, "name": "Bob", "secret": 3}`),
	}, projectiontest.Documents{"slim": {`{"_id": 1, "name": {"last": "Lee"}, "tags": ["z"]}`, `{"_id": 2, "name": "Bob"}`}})
}

func TestMirrorMapsItsKey(t *testing.T) {
	m := mirror(t, projection.MirrorOptions{Key: "sku.id"})
	require.Equal(t, "mirror", m.Name())
	projectiontest.Check(t, m, []projection.Event{
		projectiontest.Insert("a", `{"_id": 1, "sku": {"id": "A"}, "n": 1}`),
		projectiontest.Insert("b", `{"_id": 2, "sku": {"id": "B"}}`),
		projectiontest.Insert("c", `{"_id": 3, "sku": {"id": "C"}}`),
		projectiontest.Update("a", `{"_id": 1, "sku": {"id": "A"}, "n": 1}`, `{"_id": 1, "sku": {"id": "A2"}, "n": 2}`),
		projectiontest.Delete("b", `{"_id": 2}`, `{"_id": 2, "sku": {"id": "B"}}`),
		projectiontest.Replace("c", `{"_id": 3, "sku": {"id": "C"}}`, `{"_id": 3, "sku": {"id": "C"}, "n": 3}`),
	}, projectiontest.Documents{"mirror": {
		`{"_id": "A2", "sku": {"id": "A2"}, "n": 2}`, `{"_id": "C", "sku": {"id": "C"}, "n": 3}`,
	}})

	harmless := projectiontest.Update("a", nil, `{"_id": 1, "sku": {"id": "A"}, "n": 2}`)
	harmless.Body = change(t, envelope.Update, `{"documentKey": {"_id": 1}, "fullDocument": {"_id": 1, "sku": {"id": "A"}, "n": 2},
		"updateDescription": {"updatedFields": {"n": 2}, "removedFields": ["sku2"]}}`).Body
	projectiontest.Check(t, m, []projection.Event{harmless}, projectiontest.Documents{"mirror": {`{"_id": "A", "sku": {"id": "A"}, "n": 2}`}})

	for name, unknown := range map[string]projection.Event{
		"an insert without it":                     projectiontest.Insert("a", `{"_id": 1}`),
		"a delete without a pre-image":             projectiontest.Delete("a", `{"_id": 1}`, nil),
		"a replacement without one":                projectiontest.Replace("a", nil, `{"_id": 1, "sku": {"id": "A"}}`),
		"an update that does not say what changed": projectiontest.Update("a", nil, `{"_id": 1, "sku": {"id": "A"}}`),
	} {
		t.Run(name, func(t *testing.T) { projectiontest.CheckPermanent(t, m, unknown) })
	}
	for _, path := range []string{"sku", "sku.id", "sku.id.x"} {
		e := harmless
		e.Body = change(t, envelope.Update, `{"documentKey": {"_id": 1}, "fullDocument": {"_id": 1, "sku": {"id": "A"}},
			"updateDescription": {"updatedFields": {"`+path+`": 2}}}`).Body
		projectiontest.CheckPermanent(t, m, e)
		e.Body = change(t, envelope.Update, `{"documentKey": {"_id": 1}, "fullDocument": {"_id": 1, "sku": {"id": "A"}},
			"updateDescription": {"updatedFields": {}, "removedFields": ["`+path+`"]}}`).Body
		projectiontest.CheckPermanent(t, m, e)
	}
}

// A document that is looked up for an update may be gone: if its key changed just before, nothing
// is left under the old one.
func TestMirrorOfADocumentThatIsGoneWhenItsKeyIsLookedUp(t *testing.T) {
	m := mirror(t, projection.MirrorOptions{Key: "sku"})
	updated := func(document, description string) projection.Event {
		e := projectiontest.Update("a", nil, `{"_id": 1}`)
		e.Body = change(t, envelope.Update, `{"documentKey": {"_id": 1}, "fullDocumentBeforeChange": {"_id": 1, "sku": "A"}`+document+`,
			"updateDescription": {`+description+`}}`).Body
		return e
	}
	const gone = `, "fullDocument": null`
	inserted := projectiontest.Insert("a", `{"_id": 1, "sku": "A"}`)
	projectiontest.Check(t, m, []projection.Event{
		inserted, updated(gone, `"updatedFields": {"sku": "B", "n": 1}`), projectiontest.Delete("a", `{"_id": 1}`, `{"_id": 1, "sku": "B", "n": 1}`),
	}, projectiontest.Documents{})
	projectiontest.Check(t, m, []projection.Event{inserted, updated(gone, `"updatedFields": {"n": 1}`)}, projectiontest.Documents{"mirror": {
		`{"_id": "A", "sku": "A", "n": 1}`,
	}})

	projectiontest.CheckPermanent(t, m, updated("", `"updatedFields": {"sku": "B"}`)) // its new place is not known: it was not looked up
	projectiontest.CheckPermanent(t, m, updated(`, "fullDocument": {"_id": 1}`, `"updatedFields": {}, "removedFields": ["sku"]`))
}

func TestInvalidMirrorOptionsAreRefused(t *testing.T) {
	_, err := projection.NewMirror(projection.MirrorOptions{Collection: "a$", Key: "a..b", Fields: []string{"ok", "", "a.b", "$x"}})
	require.EqualError(t, err, "the collection's name is not one that MongoDB takes\nthe key \"a..b\" is not a path of fields\n"+
		"the field \"\" is not the name of a top-level field\nthe field \"a.b\" is not the name of a top-level field\nthe field \"$x\" is not the name of a top-level field")
	require.Equal(t, projection.Mirror{}, mirror(t, projection.MirrorOptions{Key: "_id"}))
}
