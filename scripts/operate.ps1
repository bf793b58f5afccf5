# operate.ps1 [-g GROUP] producer|projector[:VERSION] COMMAND…: operate.sh for Windows, with the same commands of az in the same order.
$ErrorActionPreference = 'Stop'
$words = [Collections.Generic.List[string]]$args

function Usage {
    [Console]::Error.WriteLine('usage: scripts/operate.ps1 [-g GROUP] producer|projector[:VERSION] COMMAND…, such as: scripts/operate.ps1 projector parked list')
    exit 2
}
$group = ''
if ($words.Count -gt 1 -and $words[0] -ceq '-g') {
    $group = $words[1]
    $words.RemoveRange(0, 2)
}
if ($words.Count -lt 2 -or $words[0] -cnotmatch '^(producer|projector(:[0-9]+)?)$') { Usage }
$service, $version = $words[0].Split(':')
$words.RemoveAt(0)

$within = if ($group) { @('--resource-group', $group) } else { @() }
$found = @(az resource list --resource-type Microsoft.App/jobs @within --output json | ConvertFrom-Json |
        Where-Object { $_.tags.application -ceq 'sluice' -and $_.tags.'sluice-commands' -ceq $service -and (-not $version -or $_.tags.'sluice-version' -ceq $version) })
if ($found.Count -ne 1) {
    [Console]::Error.WriteLine("operate: there must be one job for the $service's commands that you may see; -g names its resource group, projector:VERSION a version. Found: $($found.Count)")
    exit 1
}
$group = $found[0].resourceGroup
$job = $found[0].name

# The job's own template with other arguments, and the place of the answer.
$answer = (Get-Date).ToUniversalTime().ToString('yyyyMMddTHHmmssZ') + "-$PID-" + (Get-Random -Maximum 32768)
$definition = az containerapp job show --resource-group $group --name $job --query properties.template --output json | ConvertFrom-Json
$container = $definition.containers[0]
$container.args = @($words)
$container.env = @($container.env) + [pscustomobject]@{ name = 'COMMAND_ANSWER'; value = "command-results/$answer" }
$url = ($container.env | Where-Object { $_.name -ceq 'BLOB_ACCOUNT_URL' }).value
$account = ([uri]$url).Host.Split('.')[0]
# A container of the projection's program beside the command's goes on after the command.
$program = $definition.containers.Count -gt 1
$work = New-Item -ItemType Directory -Path (Join-Path ([IO.Path]::GetTempPath()) $answer)

# Part prints what the command has printed since the last call.
$shown = @{}
function Part([string]$suffix) {
    $file = Join-Path $work "new$suffix"
    az storage blob download --auth-mode login --account-name $account --container-name command-results --name "$answer$suffix" --file $file --overwrite --no-progress --output none 2>$null
    if ($LASTEXITCODE -ne 0) { return '' }
    $text = [string](Get-Content -Raw -Encoding utf8 -Path $file)
    $from = [int]$shown[$suffix]
    $shown[$suffix] = $text.Length
    return $text.Substring($from)
}
# Show prints both outputs as far as they are new.
function Show {
    [Console]::Out.Write((Part '.out'))
    [Console]::Error.Write((Part '.err'))
}
# There returns whether the command has kept its exit code; nothing if storage cannot be read.
function There {
    $there = az storage blob exists --auth-mode login --account-name $account --container-name command-results --name "$answer.code" --query exists --output tsv 2>$null
    if ($LASTEXITCODE -eq 0) { return $there }
}
# Stop ends the job if it has another container, because the platform ends it when all of them have ended.
function Stop {
    if (-not $program) { return }
    az containerapp job stop --resource-group $group --name $job --job-execution-name $execution --output none
    if ($LASTEXITCODE -ne 0) { [Console]::Error.WriteLine("stop $($execution): it runs on without its command") }
}
# FromLog prints the command's records from the workspace, once the last of them is there, and returns the exit code.
function FromLog {
    $query = "ContainerAppConsoleLogs | where ContainerGroupName startswith '$execution' | order by TimeGenerated asc | project Log"
    [Console]::Error.WriteLine('storage cannot be read from here; waiting for the log, which is a few minutes late')
    $workspace = az monitor log-analytics workspace list --resource-group $group --query '[0].customerId' --output tsv
    for ($i = 0; $i -lt 60; $i++) {
        $lines = @(az monitor log-analytics query --workspace $workspace --analytics-query $query --query '[].Log' --output tsv)
        if ($LASTEXITCODE -ne 0) { return 1 }
        $end = @($lines | Select-String -Pattern '"msg":"command ended".*"code":([0-9]+)')
        if ($end.Count -gt 0) {
            Stop
            $lines | Where-Object { $_ -notmatch '"msg":"command ended"' } | ForEach-Object { [Console]::Out.WriteLine($_) }
            return [int]$end[0].Matches[0].Groups[1].Value
        }
        Start-Sleep -Seconds 5
    }
    [Console]::Error.WriteLine("the log is late; ask for it later: $query")
    return 1
}

$code = 1
try {
    $template = Join-Path $work 'template.yaml'
    $definition | ConvertTo-Json -Depth 32 | Set-Content -Encoding utf8 -Path $template
    $execution = az containerapp job start --resource-group $group --name $job --yaml $template --query name --output tsv
    if ($LASTEXITCODE -ne 0) { exit 1 }
    [Console]::Error.WriteLine("operate: started $execution")
    $status = 'Running'
    $failures = 0
    while ($status -cin 'Running', 'Processing', 'Unknown') {
        Start-Sleep -Seconds 5
        $status = az containerapp job execution show --resource-group $group --name $job --job-execution-name $execution --query properties.status --output tsv
        if ($LASTEXITCODE -eq 0) { $failures = 0 } else { $status = 'Unknown'; $failures++ }
        if ($failures -eq 10) {
            [Console]::Error.WriteLine("the state of $execution cannot be read; it may go on")
            exit 1
        }
        Show
        if ($program -and $status -ceq 'Running') {
            $there = There
            if ($there -ceq 'true') { Stop }
            if ($there -cne 'false') { break }
        }
    }
    $there = There
    if (-not $there) {
        $code = FromLog
    } elseif ($there -ceq 'true') {
        Show
        $code = [int](Part '.code')
    } else {
        [Console]::Error.WriteLine("the platform ended the command ($status) before it could keep its exit code: $execution")
    }
} finally {
    Remove-Item -Recurse -Force $work
}
exit $code
