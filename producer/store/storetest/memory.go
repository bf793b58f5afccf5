package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-cdc/sluice/producer/store"
)

// Memory is a store in memory, for tests. The zero value is empty.
type Memory struct {
	mu      sync.Mutex
	objects map[string]store.Object // guarded by mu
}

var _ store.Store = (*Memory)(nil)

// Get implements [store.Store].
func (m *Memory) Get(ctx context.Context, name string) (store.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found, ok := m.objects[name]
	switch {
	case ctx.Err() != nil:
		return store.Object{}, ctx.Err()
	case !ok:
		return store.Object{}, fmt.Errorf("get %s: %w", name, store.ErrNotFound)
	}
	return found, nil
}

// Put implements [store.Store].
func (m *Memory) Put(ctx context.Context, name string, data []byte, tag store.Tag) (store.Tag, error) {
	found, err := m.Get(ctx, name)
	if err != nil {
		return "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if found.Tag != tag || m.objects[name].Tag != tag {
		return "", fmt.Errorf("put %s: %w", name, store.ErrChanged)
	}
	next := store.NewTag()
	m.objects[name] = store.Object{Data: slices.Clone(data), Tag: next}
	return next, nil
}

// Create implements [store.Store].
func (m *Memory) Create(ctx context.Context, name string, data []byte) (store.Tag, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if _, exists := m.objects[name]; exists {
		return "", fmt.Errorf("create %s: %w", name, store.ErrChanged)
	}
	if m.objects == nil {
		m.objects = map[string]store.Object{}
	}
	tag := store.NewTag()
	m.objects[name] = store.Object{Data: slices.Clone(data), Tag: tag}
	return tag, nil
}

// List implements [store.Store].
func (m *Memory) List(_ context.Context, prefix string) (names []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.objects {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Delete implements [store.Store].
func (m *Memory) Delete(_ context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, exists := m.objects[name]; !exists {
		return fmt.Errorf("delete %s: %w", name, store.ErrNotFound)
	}
	delete(m.objects, name)
	return nil
}
