package projector

import (
	"context"
	"errors"
	"iter"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/internal/claims"
	"github.com/sluice-cdc/sluice/projector/internal/sessions"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/claim"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// openClaims makes what redeems claim checks, with storage behind it where some is configured.
func openClaims(cfg Config, opts Options) (*claims.Redeemer, error) {
	if cfg.Blob == (azure.Blob{}) {
		return claims.New(nil, opts.Logger), nil
	}
	var o azblob.ClientOptions
	if opts.Blob != nil {
		o = *opts.Blob
	}
	o.Retry.MaxRetries = -1 // the redeemer retries what it must, at its own times
	client, err := cfg.Blob.Client(opts.Credential, &o)
	if err != nil {
		return nil, err
	}
	return claims.New(claim.NewStore(client, cfg.ClaimContainer), opts.Logger), nil
}

// parts cuts a batch into what is applied at once: an event whose body is kept elsewhere stands alone, so that a session never
// holds more than one such body.
func (b *batch) parts() iter.Seq[*batch] {
	return func(yield func(*batch) bool) {
		for begun := 0; begun < b.len(); {
			end := begun + 1
			for b.changes[begun].Claim == nil && end < b.len() && b.changes[end].Claim == nil {
				end++
			}
			part := &batch{messages: b.messages[begun:end], changes: b.changes[begun:end], results: b.results[begun:end], spans: b.spans}
			if !yield(part) {
				return
			}
			begun = end
		}
	}
}

// finishParts deals with a batch, part after part.
func (s *service) finishParts(
	receiving, applying context.Context, session *sessions.Session, b *batch, completing *settlement,
) error {
	for part := range b.parts() {
		done, err := s.redeem(receiving, part)
		if err == nil {
			err = s.finish(receiving, applying, session, part, completing)
		}
		if done != nil {
			part.changes[0].Body = nil // the batch holds the change until all of its parts are through
			done()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// redeem gets the body of a batch that claims one, for as long as that takes: while storage is away the session is kept, or
// given back every maxStuck.
// A body that can never be had makes its event poison. done gives the room for the body back; nil: there is none.
func (s *service) redeem(receiving context.Context, b *batch) (done func(), err error) {
	if b.changes[0].Claim == nil || b.results[0].Kind != apply.Pending {
		return nil, nil
	}
	receiving, cancel := context.WithTimeoutCause(receiving, maxStuck, sessions.ErrRelease)
	defer cancel()
	done, err = s.claims.Redeem(receiving, &b.changes[0])
	if refusal, ok := errors.AsType[*envelope.Error](err); ok {
		b.results[0] = apply.Undecodable(refusal)
		return done, nil
	}
	return done, err
}
