package projection_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/projector/projection/projectiontest"
)

func TestTheFieldsOfAnEvent(t *testing.T) {
	t.Parallel()
	e := projectiontest.Insert("order-1", `{
		"name": "Ann", "empty": "", "nothing": null,
		"id": {"$oid": "692b4c1c0000000329044c00"},
		"small": 7, "large": {"$numberLong": "5000000000"}, "double": 2.5, "decimal": {"$numberDecimal": "12"},
		"data": {"customerId": "ann", "totalCents": 700}
	}`)
	for path, want := range map[string]string{
		"name": "Ann", "data.customerId": "ann", "id": "692b4c1c0000000329044c00", "small": "7", "large": "5000000000",
		"empty": "", "nothing": "", "missing": "", "name.missing": "", "data.missing": "", "": "",
	} {
		require.Equal(t, want, e.Text(path), path)
	}
	for path, want := range map[string]int64{
		"small": 7, "large": 5_000_000_000, "double": 2, "data.totalCents": 700,
		"decimal": 0, "name": 0, "nothing": 0, "missing": 0, "data": 0,
	} {
		require.Equal(t, want, e.Int(path), path)
	}
}

func TestAnEventWithoutADocumentHasNoFields(t *testing.T) {
	t.Parallel()
	var e projection.Event
	require.Empty(t, e.Text("name"))
	require.Zero(t, e.Int("small"))
}
