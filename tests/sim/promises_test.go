package sim

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-cdc/sluice/tests/internal/checker"
)

// otherwise stands for the failure of a run without a broken promise: it hangs, or cannot even be
// judged.
const otherwise = "the run itself"

// promises are those that a run has broken, each once. They may be used from any goroutine.
type promises struct {
	mu     sync.Mutex
	broken []string // guarded by mu
}

// add adds the promise that a violation breaks.
func (p *promises) add(violation error) {
	name := otherwise
	if promise := checker.Promise(violation); promise != nil {
		name = promise.Error()
	}
	p.put(name)
}

func (p *promises) put(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(p.broken, name) {
		p.broken = append(p.broken, name)
	}
}

// join adds the promises of another run, which has failed.
func (p *promises) join(of *promises) {
	for _, name := range of.names() {
		p.put(name)
	}
}

// names returns the promises of a run that has failed.
func (p *promises) names() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.broken) == 0 {
		return []string{otherwise}
	}
	return slices.Clone(p.broken)
}

func (p *promises) has(name string) bool { return slices.Contains(p.names(), name) }

// kind returns the promise that identifies a failure: the one nearest to the cause.
func (p *promises) kind() string {
	for _, promise := range checker.Promises() {
		if p.has(promise.Error()) {
			return promise.Error()
		}
	}
	return otherwise
}

func (p *promises) String() string { return strings.Join(p.names(), "; ") }

func (p *promises) write(path string) error {
	text, err := json.Marshal(p.names())
	if err != nil {
		return fmt.Errorf("write verdict: %w", err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("write verdict: %w", err)
	}
	return nil
}
