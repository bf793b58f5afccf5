#!/usr/bin/env bash
# what-if.sh: prints what a deployment of infra/main.bicep would change, with the parameters that azd would take from the environment. It needs az,
# jq and perl, and no right to write: Azure is asked not to check for that.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# az gives each value the type of its parameter. An empty value is the parameter's default, as it is for azd.
parameters=()
while IFS= read -r line; do
  case $line in *=) ;; *) parameters+=("$line") ;; esac
done < <(
  jq --raw-output '.parameters | to_entries[] | "\(.key)=\(.value.value)"' infra/main.parameters.json |
    perl -pe 's/\$\{([A-Z0-9_]+)(?:=([^}]*))?\}/length($ENV{$1} \/\/ "") ? $ENV{$1} : ($2 \/\/ "")/ge'
)
az deployment sub what-if --location "$AZURE_LOCATION" --template-file infra/main.bicep --parameters "${parameters[@]}" \
  --validation-level ProviderNoRbac
