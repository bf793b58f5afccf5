#!/usr/bin/env bash
# Sourced by operate.sh and loadtest.sh: waits for a command that runs as a job, and prints its output. The command keeps its output and
# its exit code in the container command-results of the storage account, because the platform shows the output of a container only
# while it runs. If storage cannot be read from here (NETWORK=private), the same text is in the log some minutes later.
#
# Works with bash 3.2, which macOS has.

# The name that the answer of this call is kept under.
answer=$(date -u +%Y%m%dT%H%M%SZ)-$$-$RANDOM

# answer_json WORD…: prints the words as a list in JSON.
answer_json() {
  printf '%s\n' "$@" | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/"&"/' | paste -s -d , - | sed -e 's/^/[/' -e 's/$/]/'
}

# answer_part SUFFIX: prints what the command has printed since the last call.
answer_part() {
  local old=$answer_work/old$1 new=$answer_work/new$1
  az storage blob download --auth-mode login --account-name "$answer_account" --container-name command-results \
    --name "$answer$1" --file "$new" --overwrite --no-progress --output none 2>/dev/null || return 0
  [[ -f $old ]] || : >"$old"
  tail -c "+$(($(wc -c <"$old") + 1))" "$new"
  mv "$new" "$old"
}

# answer_there: prints whether the command has kept its exit code; an error if storage cannot be read.
answer_there() {
  az storage blob exists --auth-mode login --account-name "$answer_account" --container-name command-results \
    --name "$answer.code" --query exists --output tsv 2>/dev/null
}

# answer_stop: ends the job if it has another container, because the platform ends it when all of them have ended.
answer_stop() {
  [[ -z $answer_program ]] || az containerapp job stop --resource-group "$answer_group" --name "$answer_job" \
    --job-execution-name "$answer_execution" --output none || echo "stop $answer_execution: it runs on without its command" >&2
}

# answer_log: prints the command's records from the workspace, once the last of them is there, and returns the exit code.
answer_log() {
  local workspace query lines code i
  query="ContainerAppConsoleLogs | where ContainerGroupName startswith '$answer_execution' | order by TimeGenerated asc | project Log"
  echo 'storage cannot be read from here; waiting for the log, which is a few minutes late' >&2
  workspace=$(az monitor log-analytics workspace list --resource-group "$answer_group" --query '[0].customerId' --output tsv) || return 1
  for ((i = 0; i < 60; i++)); do
    lines=$(az monitor log-analytics query --workspace "$workspace" --analytics-query "$query" --query '[].Log' --output tsv) || return 1
    code=$(printf '%s\n' "$lines" | sed -n 's/.*"msg":"command ended".*"code":\([0-9]*\).*/\1/p')
    if [[ -n $code ]]; then
      answer_stop
      printf '%s\n' "$lines" | sed '/"msg":"command ended"/d'
      return "$code"
    fi
    sleep "${OPERATE_POLL:-5}"
  done
  echo "the log is late; ask for it later: $query" >&2
  return 1
}

# answer_await GROUP JOB EXECUTION ACCOUNT [PROGRAM]: prints what the command prints while it runs, and returns its exit code when it has ended; 1 if the
# platform ended it. PROGRAM is not empty if the job has a container beside the command's.
answer_await() {
  answer_group=$1 answer_job=$2 answer_execution=$3 answer_account=$4 answer_program=${5:-}
  local status=Running failures=0 there code=1
  answer_work=$(mktemp -d)
  while [[ $status == Running || $status == Processing || $status == Unknown ]]; do
    sleep "${OPERATE_POLL:-5}"
    if status=$(az containerapp job execution show --resource-group "$1" --name "$2" --job-execution-name "$3" \
      --query properties.status --output tsv); then
      failures=0
    else
      failures=$((failures + 1)) status=Unknown
      if ((failures == 10)); then
        echo "the state of $3 cannot be read; it may go on" >&2
        return 1
      fi
    fi
    answer_part .out
    answer_part .err >&2
    if [[ $status == Running && -n $answer_program ]]; then
      there=$(answer_there) || break # the log has it
      [[ $there != true ]] || { answer_stop && break; }
    fi
  done
  if ! there=$(answer_there); then
    code=0
    answer_log || code=$?
  elif [[ $there == true ]]; then
    answer_part .out
    answer_part .err >&2
    code=$(answer_part .code)
  else
    echo "the platform ended the command ($status) before it could keep its exit code: $3" >&2
  fi
  rm -rf "$answer_work"
  return "$code"
}
