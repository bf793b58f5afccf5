package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/answer"
	"github.com/sluice-cdc/sluice/tests/internal/bicep"
)

// understands reports whether a service's program knows a command line: it then reports that its
// settings are missing.
func understands(t *testing.T, service string, args []string) bool {
	t.Helper()
	asked := errors.New("the settings were asked for")
	r := execute(t, service, args, asked)
	return strings.Contains(r.errOut, asked.Error()) || strings.HasPrefix(r.out, "usage: "+service)
}

// execute runs a service's command line with settings that cannot be loaded.
func execute(t *testing.T, service string, args []string, problem error) ran {
	t.Helper()
	var out, errOut bytes.Buffer
	code := 0
	switch service {
	case "producer":
		code = producer.Execute(t.Context(), args, func() ([]producer.Config, error) { return nil, problem },
			producer.Options{}, &out, &errOut, func(context.Context, []producer.Config) error { return nil })
	case "projector":
		code = projector.Execute(t.Context(), args, func() (projector.Config, error) { return projector.Config{}, problem },
			projector.Options{}, &out, &errOut, func(context.Context, projector.Config) error { return nil })
	}
	return ran{out: out.String(), errOut: errOut.String(), code: code}
}

// jobs returns the modules of a service's template that create jobs, by name.
func jobs(t *testing.T, service string) map[string]bicep.Value {
	t.Helper()
	found := map[string]bicep.Value{}
	for _, m := range template(t, appFile[service]).All("module") {
		if m.Type == "job.bicep" {
			found[m.Name] = m.Value.At("params")
		}
	}
	return found
}

// A job runs a command of its program, with the service's settings and rights.
func TestJobsRunExistingCommands(t *testing.T) {
	scheduled := map[string]string{}
	for _, s := range services {
		for name, params := range jobs(t, s.name) {
			var args []string
			for _, word := range params.At("args").Items {
				require.True(t, word.Kind == bicep.String || word.Text == "copiesContainer", "%s: %s", name, word.Text)
				args = append(args, word.Text)
			}
			require.True(t, understands(t, s.name, args), "%s: %s %v", name, s.name, args)
			for _, same := range []string{"settings", "image", "identityId", "mongoSecretUri", "registry"} {
				require.Equal(t, same, params.At(same).Text, "%s: as the %s has it", name, s.name)
			}
			if schedule := params.At("schedule").Text; schedule != "" {
				require.Empty(t, params.At("operatorsGroupId").Text, "%s: a schedule starts it; operators have a job of their own", name)
				scheduled[name] = schedule + ": " + s.name + " " + strings.Join(args, " ")
			} else {
				require.Equal(t, []string{"help"}, args, "%s: an operator gives the command", name)
				require.Equal(t, "operatorsGroupId", params.At("operatorsGroupId").Text, name)
			}
		}
	}
	require.Equal(t, map[string]string{
		"watch": "*/5 * * * *: projector status --log",
		"copy":  "7 * * * *: producer token copy --container copiesContainer",
	}, scheduled)
	require.False(t, understands(t, "projector", []string{"status", "--lag"}), "this test can fail")
}

// job is a job's template as `az containerapp job show` prints it.
const job = `{
  "containers": [
    {
      "args": [
        "help"
      ],
      "env": [
        {
          "name": "MONGODB_URI",
          "secretRef": "mongodb-uri"
        },
        {
          "name": "BLOB_ACCOUNT_URL",
          "value": "https://stx.blob.core.windows.net"
        }
      ],
      "image": "registry/projector:1",
      "name": "command"
    }
  ]
}`

// azStandIn returns az's answers while a command runs as a job: the state is Running once, with a
// first line of output, and then status. As in Azure, the output of a container cannot be read
// after the execution has ended. blobs is what storage answers: "true", "false" if the command was
// killed, or "refused" from outside of a private network.
func azStandIn(dir, status, code, blobs string) string {
	return `dir=` + dir + `; status=` + status + `; code=` + code + `; blobs=` + blobs + `
flag() { want=$1; shift; while [ $# -gt 1 ]; do [ "$1" != "$want" ] || echo "$2"; shift; done; }
answer() { sed -n 's|.*"COMMAND_ANSWER", *"value": *"command-results/\([^"]*\)".*|\1|p' "$dir/started" "$dir/parameters" 2>/dev/null; }
case "$*" in
*"resource list"*) printf 'rg-x\tcaj-x\n' ;;
*"job show"*) cat <<'JSON'
` + job + `
JSON
;;
*"job start"*) [ -z "$(flag --yaml "$@")" ] || cp "$(flag --yaml "$@")" $dir/started; echo the-execution ;;
*"execution show"*) if [ -f $dir/ran ]; then echo $status; else : >$dir/ran; echo Running; fi
  [ $blobs = refused ] || { echo "first line" >$dir/$(answer).out
    [ $status = Running ] || [ ! -f $dir/ended ] || { echo "what it prints" >>$dir/$(answer).out; [ $blobs = false ] || { echo "what failed" >$dir/$(answer).err; echo $code >$dir/$(answer).code; }; }
    : >$dir/ended; } ;;
*"logs show"*) echo "No replicas found for execution" >&2; exit 1 ;;
*"blob exists"*) [ $blobs != refused ] || exit 1; if [ -f "$dir/$(flag --name "$@")" ]; then echo true; else echo false; fi ;;
*"blob download"*) [ $blobs != refused ] && [ -f "$dir/$(flag --name "$@")" ] && cp "$dir/$(flag --name "$@")" "$(flag --file "$@")" ;;
*"workspace list"*) echo the-workspace ;;
*"log-analytics query"*) printf '%s\n' 'what the log has' '{"level":"INFO","msg":"command ended","service":"x","code":'$code'}' ;;
`
}

// The operators' script starts the job with the given command, word by word, and otherwise as it is
// deployed. It prints what the command prints, and exits with the command's code.
func TestOperateStartsTheJobWithTheCommand(t *testing.T) {
	for _, c := range []struct {
		args          []string
		status, blobs string
		code          int
		out, errOut   string
	}{
		{[]string{"projector", "parked", "show", `order "17" \ 'a'`}, "Succeeded", "true", 0, "first line\nwhat it prints\n", "what failed\n"},
		{[]string{"producer", "doctor"}, "Failed", "true", 1, "first line\nwhat it prints\n", "what failed\n"},
		{[]string{"-g", "rg-x", "producer", "no-command"}, "Failed", "true", 2, "first line\nwhat it prints\n", "what failed\n"},
		{[]string{"producer", "doctor"}, "Failed", "false", 1, "first line\nwhat it prints\n", "the platform ended the command (Failed)"},
		{[]string{"producer", "doctor"}, "Failed", "refused", 2, "what the log has\n", "storage cannot be read from here"},
		{[]string{"projector", "status"}, "Succeeded", "refused", 0, "what the log has\n", "storage cannot be read from here"},
		{[]string{"projector:12", "status"}, "Succeeded", "true", 0, "first line\nwhat it prints\n", "what failed\n"},
		{[]string{"scaler", "doctor"}, "", "true", 2, "", "usage: "},
		{[]string{"projector:", "status"}, "", "true", 2, "", "usage: "},
		{[]string{"projector:2x", "status"}, "", "true", 2, "", "usage: "},
		{[]string{"producer:2", "status"}, "", "true", 2, "", "usage: "},
		{[]string{"producer"}, "", "true", 2, "", "usage: "},
		{[]string{"producer", "a\nb"}, "", "true", 2, "", "usage: "},
	} {
		dir := t.TempDir()
		standIn(t, dir, "azd", `exit 1`) // an operator does not have the folder of the deployment
		standIn(t, dir, "az", azStandIn(dir, c.status, fmt.Sprint(c.code), c.blobs)+"esac")
		r := run(t, dir, nil, append([]string{"bash", "scripts/operate.sh"}, c.args...)...)
		require.Equal(t, c.code, r.code, "%v: %s", c.args, r.errOut)
		require.Contains(t, r.errOut, c.errOut)
		if c.status == "" {
			require.Empty(t, r.calls)
			continue
		}
		require.Equal(t, c.out, r.out, "%v: %s", c.args, r.errOut)
		started, before := startedJob(t, dir), jobTemplate{}
		require.NoError(t, json.Unmarshal([]byte(job), &before))
		words := make([]any, 0, len(c.args))
		service := slices.IndexFunc(c.args, func(word string) bool { return strings.HasPrefix(word, "pro") })
		for _, word := range c.args[service+1:] {
			words = append(words, word)
		}
		before.Containers[0]["args"] = words
		env, ok := started.Containers[0]["env"].([]any)
		require.True(t, ok)
		require.Contains(t, fmt.Sprint(env[0]), "command-results/")
		started.Containers[0]["env"] = env[1:]
		require.Equal(t, before, started)
		name, version, chosen := strings.Cut(c.args[service], ":")
		require.Contains(t, r.calls, `tags."sluice-commands"=='`+name+"'")
		require.Equal(t, chosen, strings.Contains(r.calls, `tags."sluice-version"=='`+version+"'"))
		require.Contains(t, r.calls, "--job-execution-name the-execution")
		require.NotContains(t, r.calls, "logs show")
		require.Equal(t, c.args[0] == "-g", strings.Contains(r.calls, "Microsoft.App/jobs --resource-group rg-x"))
	}
}

type jobTemplate struct{ Containers []map[string]any }

// startedJob returns the template with which the stand-in of az was asked to start a job.
func startedJob(t *testing.T, dir string) (started jobTemplate) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "started"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &started), "%s", text)
	return started
}

// A job with a container of the projection's program does not end when the command does, so it is
// stopped then. The command's container alone gets the command.
func TestOperateEndsAJobWithAProgram(t *testing.T) {
	const program = `    },
    {
      "args": [],
      "env": [],
      "image": "x/totals:1",
      "name": "projection"
    }
  ]`
	for blobs, out := range map[string]string{"true": "first line\nwhat it prints\n", "refused": "what the log has\n"} {
		dir := t.TempDir()
		az := strings.Replace(azStandIn(dir, "Running", "1", blobs), job, strings.Replace(job, "    }\n  ]", program, 1), 1)
		az = strings.Replace(az, "[ $status = Running ] || [ ! -f", "[ ! -f", 1) // the command ends, the job does not
		standIn(t, dir, "az", strings.Replace(az, `*"logs show"*)`, `*"job stop"*) ;;
*"logs show"*)`, 1)+"esac")
		r := run(t, dir, nil, "bash", "scripts/operate.sh", "projector", "verify") // the job never ends
		require.Equal(t, 1, r.code, r.errOut)
		require.Equal(t, out, r.out, r.errOut)
		require.Equal(t, 1, strings.Count(r.calls, "containerapp job stop --resource-group rg-x --name caj-x --job-execution-name the-execution"), r.calls)
		started := startedJob(t, dir)
		require.Equal(t, []any{"verify"}, started.Containers[0]["args"])
		require.Equal(t, map[string]any{"args": []any{}, "env": []any{}, "image": "x/totals:1", "name": "projection"}, started.Containers[1])
	}
}

// The operators' job is found by the tag that the scripts ask for, and each service has one.
func TestOperateFindsTheJobByItsTag(t *testing.T) {
	for _, s := range services {
		params, found := jobs(t, s.name)["operate"]
		require.True(t, found)
		require.Equal(t, s.name, params.At("tags", "sluice-commands").Text)
		require.Equal(t, map[string]string{"projector": "version"}[s.name], params.At("tags", "sluice-version").Text)
		require.Equal(t, "sluice", params.At("tags", "application").Text)
	}
	for _, script := range []string{"scripts/answer.sh", "shared/answer/answer.go"} {
		require.Contains(t, read(t, script), answer.EndMessage)
	}
	results := find(t, "modules/storage.bicep", "resource", "results").Value.At("name")
	require.Contains(t, read(t, "scripts/answer.sh"), "--container-name "+results.Text)
}

// newerThanBash32 matches forms that the bash of macOS does not have.
var newerThanBash32 = regexp.MustCompile(`\$\{\w+(?:\^|,|@)|\b(?:mapfile|readarray|coproc)\b|declare -[An]|local -[An]|&>>|\|&|wait -n|EPOCH(?:SECONDS|REALTIME)|\bprintf -v \w+\[|\$\{\w+: -`)

// The operators' scripts work with the bash of macOS.
func TestOperatorsScriptsWorkWithAnOldBash(t *testing.T) {
	for _, script := range []string{"scripts/operate.sh", "scripts/answer.sh", "scripts/loadtest.sh", "scripts/pipeline.sh"} {
		for line := range strings.Lines(read(t, script)) {
			require.Empty(t, newerThanBash32.FindString(line), "%s: %s", script, line)
		}
	}
	require.NotEmpty(t, newerThanBash32.FindString(`job=SERVICE_${service^^}_JOB_NAME`), "this test can fail")
}

var operated = regexp.MustCompile("(?m)(?:`|^)scripts/operate\\.sh (producer|projector) ([^`#\n]+)")

// The commands in the runbook exist.
func TestTheRunbooksCommandsExist(t *testing.T) {
	checked := 0
	for page, text := range documents(t) {
		for _, m := range operated.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[2], "COMMAND") {
				continue
			}
			checked++
			require.True(t, understands(t, m[1], strings.Fields(m[2])), "%s: %s", page, m[0])
		}
	}
	require.GreaterOrEqual(t, checked, 4, "commands are found at all")
}
