package projection_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
)

func TestOperatorsAreValidated(t *testing.T) {
	decimal, err := bson.ParseDecimal128("1.5")
	require.NoError(t, err)
	for _, c := range []struct {
		op    projection.Op
		wrong string // empty: nothing is
	}{
		{projection.Inc("n", 1), ""},
		{projection.Add("n", 1.5), ""},
		{projection.Add("n", decimal), ""},
		{projection.Mul("n", int32(2)), ""},
		{projection.Mul("n", uint8(2)), ""},
		{projection.Add("n", "2"), "$inc of n needs a number (int32, int64, float64 or bson.Decimal128), not a string"},
		{projection.Mul("n", nil), "$mul of n needs a number (int32, int64, float64 or bson.Decimal128), not a <nil>"},
		{projection.AddToSet("l"), ""},
		{projection.AddToSet("l", 1, bson.D{{Key: "$each", Value: 1}}), ""},
		{projection.Op{Kind: projection.OpAddToSet, Field: "l", Value: 1}, "$addToSet of l needs {$each: [values]}, which AddToSet makes"},
		{projection.Pull("l", 1, nil, bson.D{{Key: "a", Value: 1}}), ""},
		{projection.Op{Kind: projection.OpPullAll, Field: "l", Value: 1}, "$pullAll of l needs a list of values, which Pull makes"},
		{projection.PullWhere("l", projection.Eq("sku", "a"), projection.Lt("count", 1)), ""},
		{projection.PullWhere("l", projection.Gte("", 1), projection.Lt("", 5)), ""},
		{projection.PullWhere("l", projection.Missing("sku")), ""},
		{projection.PullWhere("l", projection.Gte("", 1), projection.Lt("n", 5)), "PullWhere of l needs conditions of fields of the elements, or conditions of the field \"\""},
		{projection.PullWhere("l", projection.Gte("n", 1), projection.Lt("", 5)), "a condition names a field of the document"},
		{projection.PullWhere("l", projection.Eq("n", nil)), "the condition $eq of \"n\" needs a number but NaN, a text, a boolean, a time, a timestamp or an ObjectID, not a <nil>"},
		{projection.Op{Kind: projection.OpPull, Field: "l", Value: bson.D{{Key: "n", Value: bson.D{{Key: "$regex", Value: "x"}}}}}, "the condition $regex of \"n\" is not supported"},
		{projection.Op{Kind: "$rename", Field: "l", Value: "m"}, "the operator \"$rename\" is not supported"},
	} {
		err := c.op.Validate()
		if c.wrong == "" {
			require.NoError(t, err, "%+v", c.op)
		} else {
			require.ErrorContains(t, err, c.wrong, "%+v", c.op)
		}
	}
}

func TestConditionsAreValidated(t *testing.T) {
	decimal, err := bson.ParseDecimal128("NaN")
	require.NoError(t, err)
	for _, fine := range []any{1, int32(1), int64(1), 1.5, "a", true, time.Now(), bson.NewObjectID(), bson.Timestamp{T: 1}} {
		w, _ := projection.DeleteIf("c", 1, projection.Eq("a.b", fine)).(projection.DeleteOne)
		require.NoError(t, w.Validate(), "%T", fine)
	}
	for _, wrong := range []any{nil, math.NaN(), decimal, bson.D{}, bson.A{1}, []byte{1}, bson.Regex{Pattern: "x"}, make(chan int)} {
		w, _ := projection.DeleteIf("c", 1, projection.Missing("a"), projection.Lte("n", wrong)).(projection.DeleteOne)
		require.ErrorContains(t, w.Validate(), `the condition $lte of "n" needs a number but NaN`, "%T", wrong)
	}
	for _, field := range []string{"", "$where"} {
		w, _ := projection.DeleteIf("c", 1, projection.Missing(field)).(projection.DeleteOne)
		require.ErrorContains(t, w.Validate(), "a condition names a field")
	}
	w, _ := projection.Delete("c", 1).(projection.DeleteOne)
	require.NoError(t, w.Validate())
}
