package storetest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer/store"
	"github.com/sluice-cdc/sluice/producer/store/storetest"
)

func TestTheStoreInMemory(t *testing.T) {
	t.Parallel()
	var m storetest.Memory
	storetest.Test(t, func(*testing.T) store.Store { return &m })
}

// mistakeVariable names the mistake of the store that a process of this program tests.
const mistakeVariable = "STORETEST_MISTAKE"

// mistakes are stores that break one rule each, by the test that fails for them.
var mistakes = map[string]struct {
	test string
	open func() store.Store
}{
	"puts without the tag":                  {"objects are created", func() store.Store { return &wrong{put: anyTag} }},
	"keeps the tag at a write":              {"objects are created", func() store.Store { return &wrong{tag: func(old store.Tag) store.Tag { return old }} }},
	"counts tags":                           {"a tag never returns", func() store.Store { return &wrong{tag: func(old store.Tag) store.Tag { return old + "i" }} }},
	"reads what was written before":         {"data is any bytes", func() store.Store { return &stale{} }},
	"creates over an object":                {"objects are created", func() store.Store { return &wrong{overwrites: true} }},
	"reads the tag and then writes":         {"one of several writers", func() store.Store { return &wrong{put: laterTag} }},
	"finds nothing to delete":               {"objects are created", func() store.Store { return &wrong{deletes: true} }},
	"takes data for text":                   {"data is any bytes", func() store.Store { return &wrong{text: true} }},
	"takes a prefix for a pattern":          {"a list has a prefix", func() store.Store { return &wrong{pattern: true} }},
	"lists in no order":                     {"a list has a prefix", func() store.Store { return &wrong{reversed: true} }},
	"continues after its context":           {"a request ends", func() store.Store { return &wrong{patient: true} }},
	"does not distinguish absent and other": {"objects are created", func() store.Store { return &wrong{vague: true} }},
}

// Each mistake is tested in a process of its own, whose tests fail.
func TestMistakesOfAStoreAreFound(t *testing.T) {
	t.Parallel()
	for name, mistake := range mistakes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program, err := os.Executable()
			require.NoError(t, err)
			child := exec.CommandContext(t.Context(), program, "-test.run", "^TestAMistake$")
			child.Env = append(os.Environ(), mistakeVariable+"="+name)
			output, err := child.CombinedOutput()
			require.Error(t, err, "the tests pass")
			require.Contains(t, string(output), "--- FAIL: TestAMistake/"+strings.ReplaceAll(mistake.test, " ", "_"))
		})
	}
}

func TestAMistake(t *testing.T) {
	mistake, ok := mistakes[os.Getenv(mistakeVariable)]
	if !ok {
		t.Skip("runs in a child process of TestMistakesOfAStoreAreFound")
	}
	s := mistake.open()
	storetest.Test(t, func(*testing.T) store.Store { return s })
}

// wrong is a store in memory that is right without one of its fields.
type wrong struct {
	put                                                          func(w *wrong, name string, data []byte, tag store.Tag) (store.Tag, error)
	tag                                                          func(old store.Tag) store.Tag
	overwrites, deletes, text, pattern, reversed, patient, vague bool

	mu      sync.Mutex
	objects map[string]store.Object // guarded by mu
}

func (w *wrong) next(old store.Tag) store.Tag {
	if w.tag == nil || old == "" && w.tag("") == "" {
		return store.NewTag()
	}
	return w.tag(old)
}

func (w *wrong) set(name string, data []byte, old store.Tag) (store.Tag, error) {
	if w.text {
		data = []byte(strings.ToValidUTF8(string(data), "\uFFFD"))
	}
	if w.objects == nil {
		w.objects = map[string]store.Object{}
	}
	tag := w.next(old)
	w.objects[name] = store.Object{Data: slices.Clone(data), Tag: tag}
	return tag, nil
}

func (w *wrong) Get(ctx context.Context, name string) (store.Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	found, ok := w.objects[name]
	switch {
	case ctx.Err() != nil && !w.patient:
		return found, ctx.Err()
	case !ok:
		return found, store.ErrNotFound
	}
	return found, nil
}

func (w *wrong) Put(_ context.Context, name string, data []byte, tag store.Tag) (store.Tag, error) {
	if w.put != nil {
		return w.put(w, name, data, tag)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	found, ok := w.objects[name]
	switch {
	case !ok && !w.vague:
		return "", store.ErrNotFound
	case found.Tag != tag || !ok:
		return "", store.ErrChanged
	}
	return w.set(name, data, tag)
}

func anyTag(w *wrong, name string, data []byte, tag store.Tag) (store.Tag, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.objects[name]; !ok {
		return "", store.ErrNotFound
	}
	return w.set(name, data, tag)
}

func laterTag(w *wrong, name string, data []byte, tag store.Tag) (store.Tag, error) {
	found, err := w.Get(context.Background(), name)
	switch {
	case err != nil:
		return "", err
	case found.Tag != tag:
		return "", store.ErrChanged
	}
	runtime.Gosched()
	return anyTag(w, name, data, tag)
}

func (w *wrong) Create(ctx context.Context, name string, data []byte) (store.Tag, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, exists := w.objects[name]; exists && !w.overwrites {
		return "", store.ErrChanged
	}
	if ctx.Err() != nil && !w.patient {
		return "", ctx.Err()
	}
	return w.set(name, data, "")
}

func (w *wrong) List(_ context.Context, prefix string) (names []string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name := range w.objects {
		before, _, _ := strings.Cut(prefix, "*")
		if strings.HasPrefix(name, prefix) || w.pattern && strings.HasPrefix(name, before) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if w.reversed {
		slices.Reverse(names)
	}
	return names, nil
}

func (w *wrong) Delete(_ context.Context, name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, exists := w.objects[name]; !exists && !w.deletes {
		return store.ErrNotFound
	}
	delete(w.objects, name)
	return nil
}

// stale reads an object as it was before the last write, as a member does that lags behind.
type stale struct {
	storetest.Memory

	mu     sync.Mutex
	before map[string]store.Object // guarded by mu
}

func (s *stale) Put(ctx context.Context, name string, data []byte, tag store.Tag) (store.Tag, error) {
	before, err := s.Memory.Get(ctx, name)
	if err == nil {
		s.mu.Lock()
		s.before = map[string]store.Object{name: before}
		s.mu.Unlock()
	}
	return s.Memory.Put(ctx, name, data, tag)
}

func (s *stale) Get(ctx context.Context, name string) (store.Object, error) {
	found, err := s.Memory.Get(ctx, name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, ok := s.before[name]; ok && !errors.Is(err, store.ErrNotFound) {
		delete(s.before, name)
		return before, nil
	}
	return found, err
}
