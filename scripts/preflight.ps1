# Run by azd on Windows before it provisions: says everything that is missing,
# at once. The same checks as preflight.sh. Values are never printed.
$problems = 0
function Problem([string]$text) {
    [Console]::Error.WriteLine("preflight: $text")
    $script:problems++
}
function Required([string]$name, [string]$what) {
    if (-not [Environment]::GetEnvironmentVariable($name)) { Problem "$name is not set: $what" }
}

# Not wrong, but seldom meant.
if (-not $env:ALERT_EMAIL) {
    [Console]::Error.WriteLine('preflight: warning: ALERT_EMAIL is not set, so alerts are in the portal and wake nobody; azd env set ALERT_EMAIL ADDRESS')
}

Required 'MONGODB_DATABASE' 'the database to watch; azd env set MONGODB_DATABASE NAME'
Required 'MONGODB_COLLECTION' 'the collection to watch; azd env set MONGODB_COLLECTION NAME'

$mode = if ($env:MONGO_MODE) { $env:MONGO_MODE } else { 'external' }
switch -CaseSensitive ($mode) {
    'external' { Required 'SOURCE_MONGODB_URI' 'a connection string; azd env set-secret SOURCE_MONGODB_URI' }
    'documentdb' { Required 'DOCUMENTDB_PASSWORD' 'of the new cluster, 8 characters or more; azd env set-secret DOCUMENTDB_PASSWORD' }
    default { Problem 'MONGO_MODE is neither external nor documentdb' }
}

$network = if ($env:NETWORK) { $env:NETWORK } else { 'public' }
switch -CaseSensitive ($network) {
    'public' { }
    'private' {
        if ($env:SERVICE_BUS_SKU -cne 'Premium') { Problem 'NETWORK=private needs SERVICE_BUS_SKU=Premium: Standard has no private endpoints' }
    }
    default { Problem 'NETWORK is neither public nor private' }
}

if ($env:SERVICE_BUS_REPLICA_REGION) {
    if ($env:SERVICE_BUS_SKU -cne 'Premium') { Problem 'SERVICE_BUS_REPLICA_REGION needs SERVICE_BUS_SKU=Premium: Standard is not replicated' }
    if ($env:SERVICE_BUS_REPLICA_REGION -ceq $env:AZURE_LOCATION) { Problem 'SERVICE_BUS_REPLICA_REGION is the region itself' }
    $lag = 300
    if ($env:SERVICE_BUS_REPLICA_LAG_SECONDS -and -not [int]::TryParse($env:SERVICE_BUS_REPLICA_LAG_SECONDS, [ref]$lag)) { $lag = -1 }
    if ($lag -ne 0 -and ($lag -lt 300 -or $lag -gt 86400)) {
        Problem 'SERVICE_BUS_REPLICA_LAG_SECONDS is neither 0 nor from 300 to 86400, which is what Service Bus takes'
    }
}

# Regions with availability zones, as Azure's list had them in 2026. Elsewhere a zone-redundant account is refused, after ten minutes.
$zones = -split @'
australiaeast austriaeast brazilsouth canadacentral centralindia centralus chilecentral eastasia eastus
eastus2 francecentral germanywestcentral indonesiacentral israelcentral italynorth japaneast japanwest
koreacentral malaysiawest mexicocentral newzealandnorth northeurope norwayeast polandcentral qatarcentral
southafricanorth southcentralus southeastasia spaincentral swedencentral switzerlandnorth uaenorth uksouth
westeurope westus2 westus3
'@
if (-not $env:STORAGE_REDUNDANCY -and $env:AZURE_LOCATION -and $zones -notcontains $env:AZURE_LOCATION) {
    Problem 'AZURE_LOCATION has no availability zones as far as is known here: take another region, or azd env set STORAGE_REDUNDANCY Standard_LRS (Standard_ZRS if it has zones after all)'
}

if ($problems -gt 0) { exit 1 }
