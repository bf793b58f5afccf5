# Run by azd on Windows before it provisions: reports everything that is missing,
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
    [Console]::Error.WriteLine('preflight: warning: ALERT_EMAIL is not set, so alerts are only shown in the portal; azd env set ALERT_EMAIL ADDRESS')
}

$mode = if ($env:MONGO_MODE) { $env:MONGO_MODE } else { 'external' }
if ($mode -cne 'demo') {
    Required 'MONGODB_DATABASE' 'the database to watch; azd env set MONGODB_DATABASE NAME'
    Required 'MONGODB_COLLECTION' 'the collection to watch; azd env set MONGODB_COLLECTION NAME'
}

switch -CaseSensitive ($mode) {
    'external' { Required 'SOURCE_MONGODB_URI' 'a connection string; azd env set-secret SOURCE_MONGODB_URI' }
    'documentdb' {
        Required 'DOCUMENTDB_PASSWORD' 'of the new cluster, 8 characters or more; azd env set-secret DOCUMENTDB_PASSWORD'
        $password = if ($env:DOCUMENTDB_PASSWORD) { $env:DOCUMENTDB_PASSWORD } else { '12345678' }
        if ($password.StartsWith('akvs://')) { $password = '12345678' } # azd resolves it later
        if ($password.Length -lt 8 -or $password.Length -gt 128) { Problem 'DOCUMENTDB_PASSWORD must have from 8 to 128 characters' }
    }
    'demo' { }
    default { Problem 'MONGO_MODE is neither external nor documentdb nor demo' }
}

$network = if ($env:NETWORK) { $env:NETWORK } else { 'public' }
switch -CaseSensitive ($network) {
    'public' {
        if ($env:SUBNET_ID) { Problem 'SUBNET_ID needs NETWORK=vnet or private' }
    }
    'vnet' { }
    'private' {
        if ($env:SERVICE_BUS_SKU -cne 'Premium') { Problem 'NETWORK=private needs SERVICE_BUS_SKU=Premium: Standard has no private endpoints' }
        if ($env:SUBNET_ID -and -not $env:ENDPOINT_SUBNET_ID) {
            Problem 'ENDPOINT_SUBNET_ID is not set: NETWORK=private with SUBNET_ID needs a subnet for the private endpoints, too'
        }
    }
    default { Problem 'NETWORK is neither public nor vnet nor private' }
}

# Whole: the value is a whole number within the bounds
function Whole([string]$value, [int]$low, [int]$high) {
    return $value -match '^[0-9]{1,8}$' -and [int]$value -ge $low -and [int]$value -le $high
}

$prefix = if ($env:NETWORK_PREFIX) { $env:NETWORK_PREFIX } else { '10.80.0.0/24' }
if (-not (Whole $prefix.Split('/')[-1] 8 24)) { Problem 'NETWORK_PREFIX must be /24 or larger, such as 10.80.0.0/24' }

# A network needs a provider that no resource of the template names, so Azure does not register it.
if ($network -cne 'public' -and $env:AZURE_SUBSCRIPTION_ID -and (Get-Command az -ErrorAction SilentlyContinue)) {
    $state = az provider show --subscription $env:AZURE_SUBSCRIPTION_ID --namespace Microsoft.ContainerService --query registrationState --output tsv 2>$null
    if ($state -and $state -cne 'Registered') {
        Problem 'Microsoft.ContainerService is not registered in the subscription, and a network needs it; az provider register --namespace Microsoft.ContainerService --wait'
    }
}

# A vault that was deleted keeps its name for seven days, unless it may be purged.
if ($env:AZURE_SUBSCRIPTION_ID -and $env:AZURE_ENV_NAME -and (Get-Command az -ErrorAction SilentlyContinue)) {
    $vaults = @(az keyvault list-deleted --subscription $env:AZURE_SUBSCRIPTION_ID --resource-type vault --output json 2>$null | ConvertFrom-Json |
            Where-Object { $_.properties.tags.'azd-env-name' -ceq $env:AZURE_ENV_NAME -and $_.properties.location -ceq $env:AZURE_LOCATION })
    if ($LASTEXITCODE -eq 0) {
        if ($vaults.Count -gt 0 -and $env:KEY_VAULT_RECOVER -cne 'true') {
            Problem 'the vault of a deleted environment of this name is still there and keeps its name; azd env set KEY_VAULT_RECOVER true'
        } elseif ($vaults.Count -eq 0 -and $env:KEY_VAULT_RECOVER -ceq 'true') {
            Problem 'KEY_VAULT_RECOVER is true and there is no deleted vault of this environment; azd env set KEY_VAULT_RECOVER false'
        }
    }
}

$versions = if ($env:PROJECTION_VERSIONS) { $env:PROJECTION_VERSIONS } else { '1' }
if (@($versions.Split(',') | Where-Object { -not (Whole $_ 1 999) }).Count -gt 0) {
    Problem 'PROJECTION_VERSIONS must be whole numbers from 1 to 999, separated by commas'
}
if ($versions -cne '1' -and $env:SERVICE_BUS_ENTITY_KIND -ceq 'queue') {
    Problem 'PROJECTION_VERSIONS needs SERVICE_BUS_ENTITY_KIND=topic: a queue has no second reader'
} elseif ($versions -cne '1' -and -not $env:PROJECTION) {
    Problem 'PROJECTION is not set, and PROJECTION_VERSIONS names subscriptions by it; azd env set PROJECTION NAME'
} elseif ($env:PROJECTION_IMAGE -and -not $env:PROJECTION) {
    Problem 'PROJECTION is not set: the name that the program in PROJECTION_IMAGE declares; azd env set PROJECTION NAME'
}

$least = if ($env:PROJECTOR_MIN_REPLICAS) { $env:PROJECTOR_MIN_REPLICAS } else { '1' }
$most = if ($env:PROJECTOR_MAX_REPLICAS) { $env:PROJECTOR_MAX_REPLICAS } else { '5' }
$messages = if ($env:PROJECTOR_MESSAGES_PER_REPLICA) { $env:PROJECTOR_MESSAGES_PER_REPLICA } else { '500' }
if (-not (Whole $most 1 1000)) { Problem 'PROJECTOR_MAX_REPLICAS must be from 1 to 1000' }
if (-not (Whole $least 0 1000)) { Problem 'PROJECTOR_MIN_REPLICAS must be from 0 to 1000' }
if ((Whole $least 0 1000) -and (Whole $most 1 1000) -and [int]$least -gt [int]$most) {
    Problem 'PROJECTOR_MIN_REPLICAS is above PROJECTOR_MAX_REPLICAS'
}
if (-not (Whole $messages 1 99999999)) { Problem 'PROJECTOR_MESSAGES_PER_REPLICA must be a whole number above 0' }

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
if (-not $env:AZURE_LOCATION) {
    [Console]::Error.WriteLine('preflight: warning: AZURE_LOCATION is not set, so whether the region has availability zones is not checked')
}
if (-not $env:STORAGE_REDUNDANCY -and $env:AZURE_LOCATION -and $zones -notcontains $env:AZURE_LOCATION) {
    Problem 'AZURE_LOCATION has no availability zones as far as is known here: take another region, or azd env set STORAGE_REDUNDANCY Standard_LRS (Standard_ZRS if it has zones after all)'
}

if ($problems -gt 0) { exit 1 }
