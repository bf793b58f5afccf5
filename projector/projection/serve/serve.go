// Package serve makes a projection in Go a program of its own, which a projector calls over HTTP
// (its setting PROJECTION_URL). It is also the reference of the protocol,
// docs/projection.openapi.yaml: programs in other languages answer in the same way.
//
//	http.ListenAndServe("127.0.0.1:8088", serve.Handler(CustomerTotals{}))
package serve

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"

	"github.com/sluice-cdc/sluice/projector/internal/remote"
	"github.com/sluice-cdc/sluice/projector/projection"
)

// maxBody bounds the body of a call, in bytes. JSON makes an event several times larger.
const maxBody = 128 << 20

// Handler answers the two calls of the protocol for a projection that declares its collections
// ([projection.Stored] or [projection.OneDocument]). An error of the projection that is not
// permanent fails the whole call, and the projector finds the event. A panic ends the connection.
func Handler(p projection.Projection) (http.Handler, error) {
	declaration, err := remote.AppendDeclaration(p)
	if err != nil {
		return nil, fmt.Errorf("serve projection %s: %w", p.Name(), err)
	}
	sum := sha256.Sum256(declaration)
	hash := hex.EncodeToString(sum[:])
	mux := http.NewServeMux()
	mux.HandleFunc("GET /projection", func(w http.ResponseWriter, _ *http.Request) { respond(w, declaration) })
	mux.HandleFunc("POST /project", func(w http.ResponseWriter, r *http.Request) {
		body, err := remote.ReadBody(http.MaxBytesReader(w, r.Body, maxBody), r.ContentLength)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		events, err := remote.ReadEvents(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		outcomes := make([]remote.Outcome, len(events))
		for i, e := range events {
			writes, err := p.Project(e)
			if err != nil && !errors.Is(err, projection.ErrPermanent) {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			outcomes[i] = remote.Outcome{Writes: writes, Err: err}
		}
		answer, err := remote.AppendAnswer(nil, hash, outcomes)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		respond(w, answer)
	})
	return mux, nil
}

func respond(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // the caller may be gone
}
