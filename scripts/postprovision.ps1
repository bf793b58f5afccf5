# Run by azd on Windows once the resources are there: prints the address that MongoDB has to allow. The same as postprovision.sh.
if (-not $env:OUTBOUND_ADDRESS) { exit 0 }
Write-Output "postprovision: what goes out comes from $($env:OUTBOUND_ADDRESS). Allow it at MongoDB now: until then the apps wait and try again."
