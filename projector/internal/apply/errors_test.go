package apply

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"

	"github.com/sluice-cdc/sluice/projector/projection"
)

func TestClassify(t *testing.T) {
	key := func(field string) bson.Raw {
		raw, err := bson.Marshal(bson.D{{Key: "keyPattern", Value: bson.D{{Key: field, Value: 1}}}})
		require.NoError(t, err)
		return raw
	}
	command := func(code int32) error { return mongo.CommandError{Code: code} }
	write := func(code int, raw bson.Raw) mongo.WriteError { return mongo.WriteError{Code: code, Raw: raw} }
	bulk := func(all ...mongo.WriteError) error {
		var e mongo.BulkWriteException
		for _, w := range all {
			e.WriteErrors = append(e.WriteErrors, mongo.BulkWriteError{WriteError: w})
		}
		return e
	}
	for _, test := range []struct {
		name string
		err  error
		want Class
	}{
		{"nothing", nil, None},
		{"the projection returns it as permanent", projection.Permanent(errors.New("x")), Permanent},
		{"the projection does not say so", errors.New("x"), Transient},
		{"our timeout", context.DeadlineExceeded, Transient},
		{"the network", mongo.CommandError{Labels: []string{"NetworkError"}, Wrapped: io.EOF}, Transient},
		{"the client is closed", mongo.ErrClientDisconnected, Transient},
		{"not the primary", command(10107), Transient},
		{"shutting down", command(91), Transient},
		{"too busy", command(16500), Transient},
		{"not allowed", command(13), Transient},
		{"unheard of", command(987654), Unknown},
		{"unheard of, by write", bulk(write(16732, nil)), Unknown},
		{"without a code", command(0), Transient},
		{"an index of two arrays", bulk(write(171, nil)), Permanent},
		{"an index whose keys cannot be built", bulk(write(201, nil)), Permanent},
		{"a geospatial index", bulk(write(16755, nil)), Permanent},
		{"a hashed index of an array", bulk(write(16766, nil)), Permanent},
		{"a text index with a language of another type", bulk(write(17261, nil)), Permanent},
		{"a text index with an unknown language", bulk(write(17262, nil)), Permanent},
		{"too large a transaction", command(257), TooLarge},
		{"too large a transaction for the cache", fmt.Errorf("commit transaction: %w", command(359)), TooLarge},
		{"unheard of, and nothing to do with the guard", bulk(write(11000, key("_id")), write(987654, nil)), Guarded},
		{"transaction aborted", command(251), Transient},
		{"write conflict", command(112), Transient},
		{"not a replica set", command(20), Transient},
		{"write concern failed", mongo.WriteException{WriteConcernError: &mongo.WriteConcernError{Code: 64}}, Transient},
		{"write concern failed for a bulk", mongo.BulkWriteException{WriteConcernError: &mongo.WriteConcernError{Code: 91}}, Transient},
		{"the guard, by command", mongo.CommandError{Code: 11000, Raw: key("_id")}, Guarded},
		{"the guard, by write", mongo.WriteException{WriteErrors: mongo.WriteErrors{write(11000, key("_id"))}}, Guarded},
		{"the guard, by a server that does not say", bulk(write(11000, nil)), Guarded},
		{"the guard of a transaction", fmt.Errorf("x: %w", errGuard), Guarded},
		{"two transactions made one document", errors.Join(errRaced, bulk(write(11000, key("_id")))), Transient},
		{"another unique index", bulk(write(11000, key("email"))), Permanent},
		{"the gravest of several", bulk(write(11000, key("_id")), write(121, nil), write(112, nil)), Permanent},
		{"validation", mongo.WriteException{WriteErrors: mongo.WriteErrors{write(121, nil)}}, Permanent},
		{"path not viable", bulk(write(28, nil)), Permanent},
		{"too large for the server", command(10334), Permanent},
		{"too large for the driver", fmt.Errorf("x: %w", driver.ErrDocumentTooLarge), Permanent},
		{"cannot be written as BSON", mongo.MarshalError{Value: 1, Err: errors.New("x")}, Permanent},
		{"a broken promise", broken("x"), Permanent},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, Classify(test.err))
			if test.err != nil {
				require.Equal(t, test.want, Classify(fmt.Errorf("wrapped: %w", test.err)))
			}
		})
	}
}
