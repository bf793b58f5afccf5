package projector

import (
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"

	"github.com/sluice-cdc/sluice/projector/internal/claims"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/claim"
)

// openClaims makes the redeemer of claim checks, with storage if some is configured.
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
