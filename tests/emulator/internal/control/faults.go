package control

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

// faults are the random faults that are in force.
type faults struct {
	server *servicebus.Server

	mu  sync.Mutex
	end func() // guarded by mu: of those in force
}

func (f *faults) replace(w http.ResponseWriter, r *http.Request) {
	var next servicebus.Faults
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16))
	d.DisallowUnknownFields()
	if err := d.Decode(&next); err != nil {
		http.Error(w, fmt.Sprintf("read faults: %v: GET / shows how they are written", err), http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end()
	f.end = f.server.Inject(next)
	w.WriteHeader(http.StatusNoContent)
}

func (f *faults) remove(w http.ResponseWriter, _ *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end()
	f.end = func() {}
	w.WriteHeader(http.StatusNoContent)
}
