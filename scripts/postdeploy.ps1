# Run by azd on Windows once the apps are deployed: prints what to do next, and runs the doctor of both services in Azure. The same as
# postdeploy.sh.
$group = if ($env:AZURE_RESOURCE_GROUP) { $env:AZURE_RESOURCE_GROUP } else { 'GROUP' }
$producer = if ($env:SERVICE_PRODUCER_NAME) { $env:SERVICE_PRODUCER_NAME } else { 'PRODUCER' }

Write-Output "postdeploy: next:
  az containerapp logs show -g $group -n $producer --follow    # `"msg`":`"leading`" from one producer
  https://portal.azure.com/#resource/subscriptions/$($env:AZURE_SUBSCRIPTION_ID)/resourceGroups/$group/overview    # the workbook Sluice, and the alerts
  infra/README.md, `"Runbook`"; docs/troubleshooting.md"

$readable = $false
if ($env:BLOB_ACCOUNT_URL -and (Get-Command az -ErrorAction SilentlyContinue)) {
    $account = ([uri]$env:BLOB_ACCOUNT_URL).Host.Split('.')[0]
    az storage blob list --auth-mode login --account-name $account --container-name command-results --num-results 1 --output none 2>$null
    $readable = $LASTEXITCODE -eq 0
}
if ($readable) {
    $services = @('producer', 'projector')
    if ($env:PROJECTION_VERSIONS -like '*,*') { $services = @('producer') + @($env:PROJECTION_VERSIONS.Split(',') | ForEach-Object { "projector:$_" }) }
    foreach ($service in $services) {
        Write-Output "postdeploy: $service doctor"
        pwsh -NoProfile -File (Join-Path $PSScriptRoot 'operate.ps1') -g $group $service doctor
        if ($LASTEXITCODE -ne 0) {
            [Console]::Error.WriteLine("postdeploy: the $service's doctor has found something, or could not run; again: scripts/operate.ps1 -g $group $service doctor")
        }
    }
} else {
    Write-Output "postdeploy: the doctors are not run, since their answers cannot be read here: az, signed in as a member of OPERATORS_GROUP_ID, can. Then:
  scripts/operate.ps1 -g $group producer doctor
  scripts/operate.ps1 -g $group projector doctor"
}
exit 0
