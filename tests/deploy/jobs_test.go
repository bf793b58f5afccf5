package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/tests/internal/bicep"
)

// understands says whether a service's program knows a command line: it then asks for its settings, of which there are none.
func understands(t *testing.T, service string, args []string) bool {
	t.Helper()
	asked := errors.New("the settings were asked for")
	var out, errOut bytes.Buffer
	switch service {
	case "producer":
		producer.Main(t.Context(), args, func() ([]producer.Config, error) { return nil, asked },
			producer.Options{}, &out, &errOut, func(context.Context, []producer.Config) error { return nil })
	case "projector":
		projector.Execute(t.Context(), args, func() (projector.Config, error) { return projector.Config{}, asked },
			projector.Options{}, &out, &errOut, func(context.Context, projector.Config) error { return nil })
	}
	return strings.Contains(errOut.String(), asked.Error()) || strings.HasPrefix(out.String(), "usage: "+service)
}

// jobs are the modules of a service's template that make jobs, by name.
func jobs(t *testing.T, service string) map[string]bicep.Value {
	t.Helper()
	found := map[string]bicep.Value{}
	for _, m := range template(t, "app/"+service+".bicep").All("module") {
		if m.Type == "'job.bicep'" || m.Type == "job.bicep" {
			params, ok := m.Value.Field("params")
			require.True(t, ok)
			found[m.Name] = params
		}
	}
	return found
}

// A job runs a command that its program has, with the service's settings and rights.
func TestJobsRunWhatTheProgramsUnderstand(t *testing.T) {
	scheduled := map[string]string{}
	for _, s := range services {
		for name, params := range jobs(t, s.name) {
			field := func(name string) bicep.Value { v, _ := params.Field(name); return v }
			var args []string
			for _, word := range field("args").Items {
				require.True(t, word.Kind == bicep.String || word.Text == "copiesContainer", "%s: %s", name, word.Text)
				args = append(args, word.Text)
			}
			require.True(t, understands(t, s.name, args), "%s: %s %v", name, s.name, args)
			for _, same := range []string{"settings", "image", "identityId", "mongoSecretUri", "registry"} {
				require.Equal(t, same, field(same).Text, "%s: as the %s has it", name, s.name)
			}
			if schedule := field("schedule").Text; schedule != "" {
				require.Empty(t, field("operatorsGroupId").Text, "%s: the clock starts it, people have one of their own", name)
				scheduled[name] = schedule + ": " + s.name + " " + strings.Join(args, " ")
			} else {
				require.Equal(t, []string{"help"}, args, "%s: a person says what it does", name)
				require.Equal(t, "operatorsGroupId", field("operatorsGroupId").Text, name)
			}
		}
	}
	require.Equal(t, map[string]string{
		"watch": "*/5 * * * *: projector status --log",
		"copy":  "7 * * * *: producer token copy --container copiesContainer",
	}, scheduled)
	require.False(t, understands(t, "projector", []string{"status", "--lag"}), "this test can fail")
}

// standIn puts a program of the given name first on PATH, which appends how it was called to a file.
func standIn(t *testing.T, dir, name, script string) {
	t.Helper()
	text := "#!/bin/sh\nprintf '%s\\n' \"" + name + " $*\" >>" + filepath.Join(dir, "calls") + "\n" + script
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755))
}

// The operators' script starts the job with the command that was given, word by word, and otherwise as it is deployed.
func TestOperateStartsTheJobWithTheCommand(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("the script is for bash")
	}
	deployed := `{
  "containers": [
    {
      "args": [
        "help"
      ],
      "env": [
        {
          "name": "MONGODB_URI",
          "secretRef": "mongodb-uri"
        }
      ],
      "image": "registry/projector:1",
      "name": "command"
    }
  ]
}`
	for _, c := range []struct {
		args   []string
		status string
		code   int
	}{
		{[]string{"projector", "parked", "show", `order "17" \ 'a'`}, "Succeeded", 0},
		{[]string{"producer", "doctor"}, "Failed", 1},
		{[]string{"scaler", "doctor"}, "", 2},
		{[]string{"producer"}, "", 2},
	} {
		dir := t.TempDir()
		standIn(t, dir, "azd", `echo "$3"`)
		standIn(t, dir, "az", `case "$*" in
*"job show"*) cat <<'JSON'
`+deployed+`
JSON
;;
*"job start"*) while [ "$1" != --yaml ]; do shift; done; cp "$2" `+dir+`/started; echo the-execution ;;
*"execution show"*) echo `+c.status+` ;;
*"logs show"*) echo "what it says" ;;
esac`)
		cmd := exec.CommandContext(t.Context(), "bash", append([]string{root + "/scripts/operate.sh"}, c.args...)...)
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "OPERATE_POLL=0")
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, io.Discard
		_ = cmd.Run()
		require.Equal(t, c.code, cmd.ProcessState.ExitCode(), c.args)
		if c.status == "" {
			require.NoFileExists(t, filepath.Join(dir, "calls"))
			continue
		}
		require.Equal(t, "what it says\n", out.String())
		text, err := os.ReadFile(filepath.Join(dir, "started"))
		require.NoError(t, err)
		var before, started struct{ Containers []map[string]any }
		require.NoError(t, json.Unmarshal(text, &started), "%s", text)
		require.NoError(t, json.Unmarshal([]byte(deployed), &before))
		words := make([]any, 0, len(c.args))
		for _, word := range c.args[1:] {
			words = append(words, word)
		}
		before.Containers[0]["args"] = words
		require.Equal(t, before, started)
		calls, err := os.ReadFile(filepath.Join(dir, "calls"))
		require.NoError(t, err)
		require.Contains(t, string(calls), "SERVICE_"+strings.ToUpper(c.args[0])+"_JOB_NAME")
		require.Contains(t, string(calls), "--job-execution-name the-execution")
	}
}

var operated = regexp.MustCompile("(?m)(?:`|^)scripts/operate\\.sh (producer|projector) ([^`#\n]+)")

// The commands that the runbook tells to type are commands.
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
