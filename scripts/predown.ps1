# Run by azd on Windows before it takes an environment down: stops while the lock on the storage account is there, and prints the
# commands of a take-down. The same as predown.sh.
$group = $env:AZURE_RESOURCE_GROUP
if (-not $group) { exit 0 } # nothing was provisioned

$locks = @()
$answered = $false
if (Get-Command az -ErrorAction SilentlyContinue) {
    $locks = @(az lock list --subscription $env:AZURE_SUBSCRIPTION_ID --resource-group $group --query "[?level=='CanNotDelete'].id" --output tsv 2>$null)
    $answered = $LASTEXITCODE -eq 0
}
if ($answered) {
    if ($locks.Count -eq 0) { exit 0 }
} else {
    # Without an answer the setting decides.
    if ($env:DELETE_LOCK -and $env:DELETE_LOCK -cne 'true') { exit 0 }
    $subscription = if ($env:AZURE_SUBSCRIPTION_ID) { $env:AZURE_SUBSCRIPTION_ID } else { 'SUBSCRIPTION' }
    $locks = @("/subscriptions/$subscription/resourceGroups/$group/providers/Microsoft.Storage/storageAccounts/ACCOUNT/providers/Microsoft.Authorization/locks/checkpoints")
    [Console]::Error.WriteLine('predown: the locks of the group cannot be read here; if there are none any more: azd env set DELETE_LOCK false')
}
# azd purges no vault that is protected, and its name stays taken.
$purge = if ($env:KEY_VAULT_PURGE_PROTECTION -and $env:KEY_VAULT_PURGE_PROTECTION -cne 'true') { ' --purge' } else { '' }
[Console]::Error.WriteLine("predown: $group is locked against deletion: it holds the checkpoints, and dead letters are nowhere else. Nothing was deleted. To delete everything:")
foreach ($lock in $locks) { [Console]::Error.WriteLine("  az lock delete --ids $lock") }
[Console]::Error.WriteLine("  azd down$purge")
if (-not $purge) { [Console]::Error.WriteLine('  azd env set KEY_VAULT_RECOVER true   # only if the environment comes back within seven days') }
exit 1
