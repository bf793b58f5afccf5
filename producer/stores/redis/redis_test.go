package redis

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer/store"
	"github.com/sluice-cdc/sluice/producer/store/storetest"
)

func TestRedisIsAStore(t *testing.T) {
	t.Parallel()
	redis := start(t, durable...)
	storetest.Test(t, func(t *testing.T) store.Store {
		t.Helper()
		return redis.open(t)
	})
}

// A key with a time to live would be a record and a mark that vanish together.
func TestG4NoObjectExpires(t *testing.T) {
	t.Parallel()
	s := start(t, durable...).open(t)
	tag, err := s.Create(t.Context(), "kept", []byte("first"))
	require.NoError(t, err)
	require.Equal(t, "-1", send(t, s, "PTTL", KeyPrefix+"kept"))
	_, err = s.Put(t.Context(), "kept", []byte("second"), tag)
	require.NoError(t, err)
	require.Equal(t, "-1", send(t, s, "PTTL", KeyPrefix+"kept"))
}

// What README.md states first: a write that succeeded is lost with the primary, because the replica
// had not received it. The tag is that of the earlier write, under which a write succeeds again.
func TestAFailoverLosesWritesThatSucceeded(t *testing.T) {
	t.Parallel()
	primary := start(t, append([]string{"--repl-diskless-sync-delay", "0"}, durable...)...)
	replica := start(t, append([]string{"--replicaof", "127.0.0.1 " + primary.port}, durable...)...)
	before, after := primary.open(t), replica.open(t)

	first, err := before.Create(t.Context(), "shop.events.json", []byte("epoch 7"))
	require.NoError(t, err)
	require.Equal(t, "1", send(t, before, "WAIT", "1", "0"), "the replica has the first write")
	require.ErrorContains(t, after.Check(t.Context()), "role is \"slave\"")
	require.Equal(t, "OK", send(t, after, "REPLICAOF", "127.0.0.1", "1"), "nothing listens there")
	second, err := before.Put(t.Context(), "shop.events.json", []byte("epoch 8"), first)
	require.NoError(t, err)
	require.NotEqual(t, first, second)

	primary.kill()
	require.Equal(t, "OK", send(t, after, "REPLICAOF", "NO", "ONE"))
	found, err := after.Get(t.Context(), "shop.events.json")
	require.NoError(t, err)
	require.Equal(t, store.Object{Data: []byte("epoch 7"), Tag: first}, found)
	_, err = after.Put(t.Context(), "shop.events.json", []byte("another epoch 8"), first)
	require.NoError(t, err)
}

// A server that does not answer holds no request beyond its deadline. The connection is not used
// again: the next response on it is that of the earlier request.
func TestARequestEndsWithItsDeadline(t *testing.T) {
	t.Parallel()
	s := start(t, durable...).open(t)
	for _, name := range []string{"one", "two"} {
		_, err := s.Create(t.Context(), name, []byte(name))
		require.NoError(t, err)
	}
	require.Equal(t, "OK", send(t, s, "CLIENT", "PAUSE", "1000", "ALL"))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := s.Get(ctx, "one")
	require.Error(t, err)
	found, err := s.Get(t.Context(), "two")
	require.NoError(t, err)
	require.Equal(t, "two", string(found.Data))
}

// A put whose connection is lost is not sent again by the store: a second one after a lost response
// would be refused, and the election could not distinguish that from a write of another client.
func TestALostResponseIsNoSecondRequest(t *testing.T) {
	t.Parallel()
	redis := start(t, durable...)
	s, other := redis.open(t), redis.open(t)
	tag, err := other.Create(t.Context(), "one", []byte("one"))
	require.NoError(t, err)
	require.Equal(t, "OK", send(t, other, "CLIENT", "PAUSE", "60000", "WRITE"))
	var putting sync.WaitGroup
	var failure error
	putting.Go(func() { _, failure = s.Put(t.Context(), "one", []byte("two"), tag) })
	for !strings.Contains(send(t, other, "CLIENT", "LIST"), " cmd=eval ") { // the put is there
		runtime.Gosched()
	}
	require.Equal(t, "1", send(t, other, "CLIENT", "KILL", "TYPE", "normal"))
	require.Equal(t, "OK", send(t, other, "CLIENT", "UNPAUSE"))
	putting.Wait()
	require.Error(t, failure)
	require.NotErrorIs(t, failure, store.ErrChanged)
	require.NotErrorIs(t, failure, store.ErrNotFound)
	found, err := other.Get(t.Context(), "one")
	require.NoError(t, err)
	require.Equal(t, tag, found.Tag)
}

func TestDoctorRefusesAnInstanceThatLosesCheckpoints(t *testing.T) {
	t.Parallel()
	require.NoError(t, start(t, durable...).open(t).Check(t.Context()))
	err := start(t, "--maxmemory-policy", "allkeys-lru").open(t).Check(t.Context())
	require.ErrorContains(t, err, `maxmemory_policy is "allkeys-lru"`)
	require.ErrorContains(t, err, `aof_enabled is "0"`)
	err = start(t, append([]string{"--cluster-enabled", "yes"}, durable...)...).open(t).Check(t.Context())
	require.ErrorContains(t, err, `cluster_enabled is "1"`)
}

func TestAPasswordIsSentAndNeverQuoted(t *testing.T) {
	t.Parallel()
	redis := start(t, append([]string{"--requirepass", "swordfish"}, durable...)...)
	for url, answer := range map[string]string{
		redis.url: "NOAUTH",
		strings.Replace(redis.url, "//", "//:herring@", 1):  "WRONGPASS",
		strings.Replace(redis.url, "//", "//x:herring@", 1): "WRONGPASS",
	} {
		s, err := Open(url)
		if err == nil {
			_, err = s.Get(t.Context(), "one")
		}
		require.ErrorContains(t, err, answer, url)
		require.NotContains(t, err.Error(), "herring")
	}
	s, err := Open(strings.Replace(redis.url, "//", "//default:swordfish@", 1) + "/3")
	require.NoError(t, err)
	_, err = s.Create(t.Context(), "one", []byte("one"))
	require.NoError(t, err)
	require.Contains(t, send(t, s, "CLIENT", "INFO"), " db=3 ")

	rights := strings.Fields("+eval +hmget +hget +hset +exists +del +scan +info +select") // README.md lists them
	for _, right := range append([]string{"~sluice:*", "on", ">pike"}, rights...) {
		require.Equal(t, "OK", send(t, s, "ACL", "SETUSER", "limited", right))
	}
	limited, err := Open(strings.Replace(redis.url, "//", "//limited:pike@", 1) + "/3")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, limited.Close()) })
	require.NoError(t, limited.Check(t.Context()))
	found, err := limited.Get(t.Context(), "one")
	require.NoError(t, err)
	_, err = limited.Put(t.Context(), "one", []byte("two"), found.Tag)
	require.NoError(t, err)
	names, err := limited.List(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, []string{"one"}, names)
	require.NoError(t, limited.Delete(t.Context(), "one"))
}

func TestInvalidURLsAreRefused(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "localhost:6379", "redis://", "http://host", "redis://host/zero", "redis://host?db=1", "redis://u:secret@%zz"} {
		_, err := Open(url)
		require.ErrorContains(t, err, URLVariable+": ", url)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestG6AnObjectThatIsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	s := start(t, durable...).open(t)
	tag, err := s.Create(t.Context(), "whole", make([]byte, MaxBytes))
	require.NoError(t, err)
	_, err = s.Put(t.Context(), "whole", make([]byte, MaxBytes+1), tag)
	require.ErrorIs(t, err, store.ErrTooLarge)
	_, err = s.Create(t.Context(), "large", make([]byte, MaxBytes+1))
	require.ErrorIs(t, err, store.ErrTooLarge)
	kept, err := s.Get(t.Context(), "whole")
	require.NoError(t, err)
	require.Equal(t, tag, kept.Tag)
	require.Len(t, kept.Data, MaxBytes)
}
