// Package storetest tests that a checkpoint store keeps what package store requires.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer/store"
)

// writers and rounds are how many clients write one object at once, and how often each does.
const (
	writers = 8
	rounds  = 20
)

// Test tests a store. open returns a client of it, each time a new one, all of the same place. The
// place is empty of objects whose names begin with "storetest".
func Test(t *testing.T, open func(t *testing.T) store.Store) {
	t.Run("objects are created once, replaced under their tag, and deleted", func(t *testing.T) { testSteps(t, open(t), open(t)) })
	t.Run("a tag never returns", func(t *testing.T) { testTags(t, open(t)) })
	t.Run("a list has a prefix and an order", func(t *testing.T) { testList(t, open(t)) })
	t.Run("data is any bytes", func(t *testing.T) { testBytes(t, open(t)) })
	t.Run("one of several creators succeeds", func(t *testing.T) { testCreators(t, open) })
	t.Run("one of several writers succeeds", func(t *testing.T) { testWriters(t, open) })
	t.Run("a request ends with its context", func(t *testing.T) { testContext(t, open(t)) })
}

func testSteps(t *testing.T, s, other store.Store) {
	t.Helper()
	ctx := t.Context()
	const name = "storetest.steps é/%20.json"
	_, err := s.Get(ctx, name)
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = s.Put(ctx, name, []byte("none"), store.NewTag())
	require.ErrorIs(t, err, store.ErrNotFound)
	require.ErrorIs(t, s.Delete(ctx, name), store.ErrNotFound)

	first, err := s.Create(ctx, name, []byte("first"))
	require.NoError(t, err)
	_, err = other.Create(ctx, name, []byte("again"))
	require.ErrorIs(t, err, store.ErrChanged)
	found, err := other.Get(ctx, name)
	require.NoError(t, err)
	require.Equal(t, store.Object{Data: []byte("first"), Tag: first}, found)

	second, err := other.Put(ctx, name, []byte("second"), found.Tag)
	require.NoError(t, err)
	require.NotEqual(t, first, second)
	_, err = s.Put(ctx, name, []byte("stale"), first)
	require.ErrorIs(t, err, store.ErrChanged)
	found, err = s.Get(ctx, name)
	require.NoError(t, err)
	require.Equal(t, store.Object{Data: []byte("second"), Tag: second}, found)
	again, err := s.Get(ctx, name)
	require.NoError(t, err)
	require.Equal(t, found, again, "only a write changes a tag")

	require.NoError(t, s.Delete(ctx, name))
	_, err = other.Get(ctx, name)
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = other.Put(ctx, name, []byte("deleted"), second)
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = s.Create(ctx, name, []byte("again"))
	require.NoError(t, err)
	_, err = other.Put(ctx, name, []byte("of the object before"), second)
	require.ErrorIs(t, err, store.ErrChanged)
	require.NoError(t, s.Delete(ctx, name))
}

// testTags fails for a store whose tags count: a record that is recreated or restored would get the
// tag that a standby has seen before, and a leader that runs would count as silent.
func testTags(t *testing.T, s store.Store) {
	t.Helper()
	ctx := t.Context()
	const name = "storetest.tags"
	seen := map[store.Tag]bool{}
	for range 3 {
		tag, err := s.Create(ctx, name, []byte("same"))
		for range 3 {
			require.NoError(t, err)
			require.NotEmpty(t, tag)
			require.False(t, seen[tag], "tag %s returned", tag)
			seen[tag] = true
			tag, err = s.Put(ctx, name, []byte("same"), tag)
		}
		require.NoError(t, err)
		require.False(t, seen[tag], "tag %s returned", tag)
		seen[tag] = true
		require.NoError(t, s.Delete(ctx, name))
	}
}

func testList(t *testing.T, s store.Store) {
	t.Helper()
	ctx := t.Context()
	for _, name := range []string{"storetest.list.b", "storetest.list.B", "storetest.list.a", "storetest.lis", "storetest.listen"} {
		_, err := s.Create(ctx, name, []byte(name))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Delete(context.WithoutCancel(ctx), name)) })
	}
	names, err := s.List(ctx, "storetest.list.")
	require.NoError(t, err)
	require.Equal(t, []string{"storetest.list.B", "storetest.list.a", "storetest.list.b"}, names)
	names, err = s.List(ctx, "storetest.none")
	require.NoError(t, err)
	require.Empty(t, names)

	// A prefix is no pattern of any kind.
	for _, name := range []string{"storetest.any*[a]_%.$", "storetest.anybodya1%1$", "storetest.any*a_%.$"} {
		_, err := s.Create(ctx, name, []byte(name))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Delete(context.WithoutCancel(ctx), name)) })
	}
	names, err = s.List(ctx, "storetest.any*[a]_%.")
	require.NoError(t, err)
	require.Equal(t, []string{"storetest.any*[a]_%.$"}, names)
}

// testBytes fails for a store that takes data for text, or reads a part of it.
func testBytes(t *testing.T, s store.Store) {
	t.Helper()
	ctx := t.Context()
	const name = "storetest.bytes"
	all := make([]byte, 200_000)
	for i := range all {
		all[i] = byte(i)
	}
	tag, err := s.Create(ctx, name, all)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Delete(ctx, name)) }()
	found, err := s.Get(ctx, name)
	require.NoError(t, err)
	require.True(t, bytes.Equal(all, found.Data))
	slices.Reverse(all)
	_, err = s.Put(ctx, name, all, tag)
	require.NoError(t, err)
	found, err = s.Get(ctx, name)
	require.NoError(t, err)
	require.True(t, bytes.Equal(all, found.Data))
}

func testCreators(t *testing.T, open func(*testing.T) store.Store) {
	t.Helper()
	const name = "storetest.creators"
	var creating sync.WaitGroup
	results := make(chan error, writers)
	for range writers {
		client := open(t)
		creating.Go(func() {
			_, err := client.Create(t.Context(), name, []byte("mine"))
			results <- err
		})
	}
	creating.Wait()
	defer func() { require.NoError(t, open(t).Delete(t.Context(), name)) }()
	created := 0
	for range writers {
		if err := <-results; err == nil {
			created++
		} else {
			require.ErrorIs(t, err, store.ErrChanged)
		}
	}
	require.Equal(t, 1, created)
}

// testWriters counts with several clients: an update that is lost shows in the sum.
func testWriters(t *testing.T, open func(*testing.T) store.Store) {
	t.Helper()
	const name = "storetest.writers"
	s := open(t)
	_, err := s.Create(t.Context(), name, []byte("0"))
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Delete(t.Context(), name)) }()
	var writing sync.WaitGroup
	failed := make(chan error, writers)
	for range writers {
		client := open(t)
		writing.Go(func() { failed <- count(t.Context(), client, name) })
	}
	writing.Wait()
	for range writers {
		require.NoError(t, <-failed)
	}
	sum, err := s.Get(t.Context(), name)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint(writers*rounds), string(sum.Data))
}

// count adds one to the number in an object, rounds times.
func count(ctx context.Context, s store.Store, name string) error {
	for done := 0; done < rounds; {
		before, err := s.Get(ctx, name)
		if err != nil {
			return err
		}
		var n int
		if _, err := fmt.Sscan(string(before.Data), &n); err != nil {
			return err
		}
		_, err = s.Put(ctx, name, fmt.Append(nil, n+1), before.Tag)
		switch {
		case err == nil:
			done++
		case !errors.Is(err, store.ErrChanged):
			return err
		}
	}
	return nil
}

func testContext(t *testing.T, s store.Store) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Create(ctx, "storetest.context", []byte("late"))
	require.Error(t, err)
	_, err = s.Get(ctx, "storetest.context")
	require.Error(t, err)
	require.NotErrorIs(t, err, store.ErrNotFound)
}
