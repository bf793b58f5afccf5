#!/bin/sh
# Run by azd before it takes an environment down: stops while the lock on the storage account is there, and prints the commands of a
# take-down. Azure refuses to delete a group with a lock in it, and "azd down --purge" has deleted the logs by then.
set -eu

group=${AZURE_RESOURCE_GROUP:-}
[ -n "$group" ] || exit 0 # nothing was provisioned

if command -v az >/dev/null 2>&1 &&
  locks=$(az lock list --subscription "${AZURE_SUBSCRIPTION_ID:-}" --resource-group "$group" --query "[?level=='CanNotDelete'].id" --output tsv 2>/dev/null); then
  [ -n "$locks" ] || exit 0
else
  # Without an answer the setting decides.
  [ "${DELETE_LOCK:-true}" = true ] || exit 0
  locks="/subscriptions/${AZURE_SUBSCRIPTION_ID:-SUBSCRIPTION}/resourceGroups/$group/providers/Microsoft.Storage/storageAccounts/ACCOUNT/providers/Microsoft.Authorization/locks/checkpoints"
  echo 'predown: the locks of the group cannot be read here; if there are none any more: azd env set DELETE_LOCK false' >&2
fi
# azd purges no vault that is protected, and its name stays taken.
if [ "${KEY_VAULT_PURGE_PROTECTION:-true}" = true ]; then purge=; else purge=' --purge'; fi
{
  echo "predown: $group is locked against deletion: it holds the checkpoints, and dead letters are nowhere else. Nothing was deleted. To delete everything:"
  for lock in $locks; do
    echo "  az lock delete --ids $lock"
  done
  echo "  azd down$purge"
  [ -n "$purge" ] || echo '  azd env set KEY_VAULT_RECOVER true   # only if the environment comes back within seven days'
} >&2
exit 1
