// Package redis is a checkpoint store in Redis: one hash for each object, under the key
// [KeyPrefix] and the object's name. Each step is one Lua script, and no request is repeated.
//
// Not guaranteed: that a write that succeeded survives. Redis replicates asynchronously, so the
// loss of the primary can undo the last writes, and so can the loss of an instance that does not
// sync each write to disk. README.md lists what that does to a stream: events are sent again, two
// replicas can lead for up to FENCE_AFTER, and in the worst case both have the same epoch.
//
// Guaranteed, as long as the instance keeps what it acknowledged: what package store requires.
package redis

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/sluice-cdc/sluice/producer/store"
)

const (
	// Name is the value of CHECKPOINT_STORE for this store.
	Name = "redis"
	// URLVariable is the environment variable with the instance's URL: a secret.
	URLVariable = "CHECKPOINT_REDIS_URL"
	// KeyPrefix begins the key of every object.
	KeyPrefix = "sluice:"
	// MaxBytes is the size of the largest object. Redis has one thread, which such a value does not
	// occupy for long.
	MaxBytes = 16 << 20
)

// requestTimeout bounds the connect, the write and the read of a request whose context ends later:
// go-redis heeds the deadline of a context, and not its cancellation.
const requestTimeout = 2 * time.Second

// results holds the results of a script, with their meaning.
var results = map[string]error{"done": nil, "missing": store.ErrNotFound, "changed": store.ErrChanged}

var errResponse = errors.New("the response has another form than those of this command")

// The scripts. KEYS[1] is the object's key. A script that fails writes nothing: its first writing
// command is its last one.
const (
	putScript = `
local tag = redis.call('HGET', KEYS[1], 'tag')
if not tag then return 'missing' end
if tag ~= ARGV[1] then return 'changed' end
redis.call('HSET', KEYS[1], 'tag', ARGV[2], 'data', ARGV[3])
return 'done'`
	createScript = `
if redis.call('EXISTS', KEYS[1]) == 1 then return 'changed' end
redis.call('HSET', KEYS[1], 'tag', ARGV[1], 'data', ARGV[2])
return 'done'`
	deleteScript = `
if redis.call('DEL', KEYS[1]) == 0 then return 'missing' end
return 'done'`
)

// Store holds objects in one instance of Redis.
type Store struct{ client *redis.Client }

var (
	_ store.Store   = (*Store)(nil)
	_ store.Checker = (*Store)(nil)
)

// FromEnvironment opens the store that CHECKPOINT_STORE=redis names, with the URL in
// CHECKPOINT_REDIS_URL. It is a value for producer.Options.Store.
func FromEnvironment(name string) (store.Store, error) {
	if name != Name {
		return nil, fmt.Errorf("CHECKPOINT_STORE: this program has no store %q; it has blob, mongodb and %s", name, Name)
	}
	address := os.Getenv(URLVariable)
	if address == "" {
		return nil, errors.New(URLVariable + ": is required with CHECKPOINT_STORE=redis")
	}
	return Open(address)
}

// Open returns the store in the instance of a URL, redis://USER:PASSWORD@HOST:PORT/DATABASE, or
// rediss:// with TLS. Nothing is sent before the first request. No error quotes the URL.
func Open(address string) (*Store, error) {
	logging.Disable() // every error is returned
	o, err := redis.ParseURL(address)
	if parsed, unread := url.Parse(address); err != nil || unread != nil || parsed.Hostname() == "" || parsed.RawQuery != "" {
		return nil, errors.New(URLVariable + ": must be redis://USER:PASSWORD@HOST:PORT/DATABASE, or rediss:// with TLS; " +
			"the user, the password and the database may be left out")
	}
	o.MaxRetries, o.DialerRetries = -1, 1 // a second put would be refused, which is not distinguished from another client's write
	o.ContextTimeoutEnabled = true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = requestTimeout, requestTimeout, requestTimeout, requestTimeout
	o.Protocol, o.DisableIdentity = 2, true // no more commands than README.md lists
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return &Store{redis.NewClient(o)}, nil
}

// Close closes the connections.
func (s *Store) Close() error { return s.client.Close() }

// Get implements [store.Store].
func (s *Store) Get(ctx context.Context, name string) (store.Object, error) {
	values, err := s.client.HMGet(ctx, KeyPrefix+name, "tag", "data").Result()
	switch {
	case err != nil:
		return store.Object{}, fmt.Errorf("get %s: %w", name, err)
	case len(values) == 2 && values[0] == nil && values[1] == nil:
		return store.Object{}, fmt.Errorf("get %s: %w", name, store.ErrNotFound)
	case len(values) != 2 || values[0] == nil || values[1] == nil:
		return store.Object{}, fmt.Errorf("get %s: %w", name, errResponse)
	}
	return store.Object{Data: []byte(values[1].(string)), Tag: store.Tag(values[0].(string))}, nil
}

// Put implements [store.Store].
func (s *Store) Put(ctx context.Context, name string, data []byte, tag store.Tag) (store.Tag, error) {
	next := store.NewTag()
	if err := s.step(ctx, "put", putScript, name, data, string(tag), string(next), string(data)); err != nil {
		return "", err
	}
	return next, nil
}

// Create implements [store.Store].
func (s *Store) Create(ctx context.Context, name string, data []byte) (store.Tag, error) {
	tag := store.NewTag()
	if err := s.step(ctx, "create", createScript, name, data, string(tag), string(data)); err != nil {
		return "", err
	}
	return tag, nil
}

// Delete implements [store.Store].
func (s *Store) Delete(ctx context.Context, name string) error {
	return s.step(ctx, "delete", deleteScript, name, nil)
}

// step runs a script with the key of an object and more arguments. data is what it writes.
func (s *Store) step(ctx context.Context, verb, script, name string, data []byte, args ...any) error {
	if len(data) > MaxBytes {
		return fmt.Errorf("%s %s: %d bytes: %w", verb, name, len(data), store.ErrTooLarge)
	}
	result, err := s.client.Eval(ctx, script, []string{KeyPrefix + name}, args...).Text()
	if err == nil {
		var known bool
		if err, known = results[result]; !known {
			err = errResponse
		}
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", verb, name, err)
	}
	return nil
}

// literal escapes the characters that have a meaning in a pattern of Redis. No name has a
// backslash.
var literal = strings.NewReplacer("*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`)

// List implements [store.Store]. It scans the keys of the whole database.
func (s *Store) List(ctx context.Context, prefix string) (names []string, err error) {
	keys := s.client.Scan(ctx, 0, KeyPrefix+literal.Replace(prefix)+"*", 1000).Iterator()
	for keys.Next(ctx) {
		names = append(names, strings.TrimPrefix(keys.Val(), KeyPrefix))
	}
	if err := keys.Err(); err != nil {
		return nil, fmt.Errorf("list %s: %w", prefix, err)
	}
	slices.Sort(names)
	return slices.Compact(names), nil // a scan may return a key twice
}

// Check returns an error that names each property of the instance that would lose the checkpoint:
// it has a policy that evicts keys, writes no append-only file, is a replica, or is part of a
// cluster. The command doctor calls it.
func (s *Store) Check(ctx context.Context) error {
	info := map[string]string{}
	for _, section := range []string{"memory", "persistence", "replication", "cluster"} {
		text, err := s.client.Info(ctx, section).Result()
		if err != nil {
			return fmt.Errorf("read the properties of the Redis instance: %w", err)
		}
		for line := range strings.Lines(text) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			info[key] = value
		}
	}
	var problems []error
	require := func(key, value, problem string) {
		if info[key] != value {
			problems = append(problems, fmt.Errorf("%s is %q: %s", key, info[key], problem))
		}
	}
	require("maxmemory_policy", "noeviction", "any other policy deletes checkpoints when memory is short; set maxmemory-policy to noeviction")
	require("aof_enabled", "1", "without an append-only file a restart loses checkpoints; set appendonly to yes")
	require("role", "master", "a replica is behind and accepts no writes; use the address of the primary")
	require("cluster_enabled", "0", "this store does not follow a cluster's redirections; use an instance outside of a cluster")
	return errors.Join(problems...)
}
