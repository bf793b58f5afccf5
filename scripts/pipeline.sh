#!/usr/bin/env bash
# pipeline.sh [OPTION…]: sets up the deployment from GitHub: azd pipeline config with the given options, and then revokes the rights that azd gives beyond
# need. Run it in place of azd pipeline config, also after each azd env set: azd grants them again each time.
#
# - Azure accepts tokens of the repository's environment "azure", and no longer those of pull requests and branches.
# - Secrets are the environment's, so that its reviewers stand before them, and no longer the repository's.
# - Once the resource group exists, the identity has its roles there, and in the subscription only the right to deploy.
#
# It needs azd, az and gh, each signed in, and an identity of Azure's in azd's question ("Federated User Managed Identity"). Works with bash 3.2.
set -euo pipefail

azd pipeline config --provider github "$@"

repository=$(gh repo view --json nameWithOwner --jq .nameWithOwner)
client=$(gh variable get AZURE_CLIENT_ID)
subscription=$(azd env get-value AZURE_SUBSCRIPTION_ID)
found=$(az identity list --subscription "$subscription" --query "[?clientId=='$client'].[name, resourceGroup, principalId]" --output tsv)
if [[ -z $found ]]; then
  echo "pipeline: AZURE_CLIENT_ID is no managed identity of the subscription; of an app registration, delete the credentials for pull requests and branches" \
    "yourself: az ad app federated-credential list --id $client" >&2
  exit 1
fi
IFS=$'\t' read -r identity group principal <<<"$found"

# The environment's credential first, so that a deployment can sign in throughout.
gh api "repos/$repository/environments/azure" --silent 2>/dev/null ||
  gh api --method PUT "repos/$repository/environments/azure" --silent
az identity federated-credential create --subscription "$subscription" --resource-group "$group" --identity-name "$identity" --name azure \
  --issuer https://token.actions.githubusercontent.com --audiences api://AzureADTokenExchange \
  --subject "repo:$repository:environment:azure" --output none
for credential in $(az identity federated-credential list --subscription "$subscription" --resource-group "$group" --identity-name "$identity" \
  --query "[?ends_with(subject, ':pull_request') || contains(subject, ':ref:')].name" --output tsv); do
  az identity federated-credential delete --yes --subscription "$subscription" --resource-group "$group" --identity-name "$identity" --name "$credential"
done

for name in SOURCE_MONGODB_URI READ_MODEL_MONGODB_URI DOCUMENTDB_PASSWORD; do
  value=$(azd env get-value "$name" 2>/dev/null) || continue
  case $value in
  akvs://*) # akvs://SUBSCRIPTION/VAULT/SECRET
    IFS=/ read -r within vault secret <<<"${value#akvs://}"
    value=$(az keyvault secret show --subscription "$within" --vault-name "$vault" --name "$secret" --query value --output tsv)
    ;;
  esac
  [[ -n $value ]] || continue
  printf %s "$value" | gh secret set "$name" --env azure
  gh secret delete "$name" 2>/dev/null || true # the repository's
done

# Who deploys to a subscription needs this right there. It makes nothing without rights on what is made.
role="Sluice deployments $subscription"
if [[ -z $(az role definition list --subscription "$subscription" --custom-role-only true --name "$role" --query '[].name' --output tsv) ]]; then
  az role definition create --subscription "$subscription" --output none --role-definition "{
    \"Name\": \"$role\", \"Description\": \"Deploy, validate and preview templates; resources need rights of their own\",
    \"Actions\": [\"Microsoft.Resources/deployments/*\", \"Microsoft.Resources/subscriptions/resourceGroups/read\"],
    \"AssignableScopes\": [\"/subscriptions/$subscription\"] }"
fi
resources=$(azd env get-value AZURE_RESOURCE_GROUP 2>/dev/null) || resources=
if [[ -n $resources && $(az group exists --subscription "$subscription" --name "$resources") == true ]]; then
  all=/subscriptions/$subscription
  assign() {
    az role assignment create --assignee-object-id "$principal" --assignee-principal-type ServicePrincipal --role "$1" --scope "$2" --output none
  }
  assign "$role" "$all"
  for wide in Contributor 'User Access Administrator'; do
    assign "$wide" "$all/resourceGroups/$resources"
    az role assignment delete --assignee "$principal" --role "$wide" --scope "$all" --output none
  done
  echo "pipeline: $identity may deploy to $resources and nothing else"
else
  echo 'pipeline: until the first deployment the identity is Contributor and User Access Administrator of the subscription; run this again after it' >&2
fi
echo "pipeline: name the reviewers of the environment azure, and allow the branch main alone: https://github.com/$repository/settings/environments"
