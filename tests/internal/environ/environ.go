// Package environ reads configurations from the environment of the process, for tests that may run
// side by side.
package environ

import (
	"errors"
	"os"
	"sync"
)

var mu sync.Mutex

// Load returns what load reads while the variables are in the environment of the process. It
// restores the environment. Calls wait for each other.
func Load[Config any](variables map[string]string, load func() (Config, error)) (c Config, err error) {
	mu.Lock()
	defer mu.Unlock()
	for name, value := range variables {
		before, ok := os.LookupEnv(name)
		defer func() {
			if ok {
				err = errors.Join(err, os.Setenv(name, before))
			} else {
				err = errors.Join(err, os.Unsetenv(name))
			}
		}()
		if err := os.Setenv(name, value); err != nil {
			return c, err
		}
	}
	return load()
}
