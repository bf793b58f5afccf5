#!/bin/sh
# Runs the Azure SDK's own tests, live ones included, against the embedded Service Bus, and
# prints passed, failed and not applicable. Nothing of the SDK is kept.
#
#   tests/emulator/scripts/conformance-azservicebus.sh [-run PATTERN] [-logs FOLDER] [-timeout 100s] [-parallel 6]
#
# The tests run from a copy of the module, with one change: if they ask for an Azure
# credential of the machine they get one that hands out an unsigned token. The namespace is
# behind TLS, and the tests trust its certificate through SSL_CERT_FILE.
set -eu
cd "$(dirname "$0")/../conformance"
module=github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus
source=$(go list -m -f '{{.Dir}}' $module)
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT INT TERM
cp -R "$source" "$work/module"
chmod -R u+w "$work/module"
cat > "$work/module/internal/test/credential.go" <<'GO'
package test

import (
	"context"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

type localCredential struct{}

func (localCredential) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "local", ExpiresOn: time.Now().Add(time.Hour)}, nil
}
GO
sed -i.orig \
	-e 's|tokenCred, err := credential.New(nil)|tokenCred, err := azcore.TokenCredential(localCredential{}), error(nil)|' \
	-e '/internal\/test\/credential"/d' "$work/module/internal/test/test_helpers.go"
(
	cd "$work/module"
	export GOWORK=off GOFLAGS=-mod=mod
	go test -c -o azservicebus.test .
	go test -c -o admin.test ./admin
	go test -c -o internal.test ./internal
)
go run ./servicebus/sdk -dir "$work/module" "$@"
