package commandline_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/checkup"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/settings"
)

type request struct {
	name  string
	loud  bool
	where string
}

func program() commandline.Program[io.Writer, request] {
	type command = commandline.Command[io.Writer, request]
	return commandline.Program[io.Writer, request]{
		Name:  "door",
		Notes: "--where says which.\n",
		Flags: func(f *flag.FlagSet, r *request) { f.StringVar(&r.where, "where", "front", "which `DOOR` is meant") },
		Commands: []command{
			{Name: "run", Summary: "stand open"},
			{
				Name: "ring twice", Takes: "NAME [--loud]", Summary: "ring", Operand: true,
				Flags: func(f *flag.FlagSet, r *request) { f.BoolVar(&r.loud, "loud", false, "ring again") },
				Check: func(operand string, r *request) error {
					if r.name = operand; operand == "" {
						return errors.New("needs a name")
					}
					return nil
				},
				Do: func(_ context.Context, out io.Writer, r request) error {
					_, err := fmt.Fprintf(out, "%+v", r)
					return err
				},
			},
			{Name: "ring once", Summary: "knock", Do: func(context.Context, io.Writer, request) error { return nil }},
		},
	}
}

// do runs a command line; each command that does something ends with the error.
func do(result error, args ...string) (code int, out, errOut string) {
	var o, e bytes.Buffer
	code = program().Main(args, &o, &e, func(c commandline.Command[io.Writer, request], r request) error {
		if c.Do != nil {
			return errors.Join(c.Do(context.Background(), &o, r), result)
		}
		o.WriteString("open")
		return result
	})
	return code, o.String(), e.String()
}

func TestACommandLineIsUnderstood(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		out  string
	}{
		{nil, "open"},
		{[]string{"run"}, "open"},
		{[]string{"ring", "twice", "ann"}, "{name:ann loud:false where:front}"},
		{[]string{"ring", "twice", "--loud", "ann", "--where=back"}, "{name:ann loud:true where:back}"},
	} {
		code, out, errOut := do(nil, c.args...)
		require.Equal(t, commandline.ExitOK, code)
		require.Equal(t, c.out, out)
		require.Empty(t, errOut)
	}
	for _, args := range [][]string{{"help"}, {"-h"}, {"--help"}, {"help", "--help"}} {
		code, out, _ := do(nil, args...)
		require.Equal(t, commandline.ExitOK, code)
		require.Regexp(t, `(?s)^usage: door .*ring twice NAME \[--loud\]\n    ring\n.*--where says which\.\n.*exits with 0`, out)
		for line := range strings.Lines(out) {
			require.LessOrEqual(t, len(line), 81, line) // 80 columns and the end of the line
		}
	}
	for _, args := range [][]string{{"ring", "twice", "--help"}, {"help", "ring", "twice"}, {"ring", "twice", "ann", "-h"}} {
		code, out, _ := do(nil, args...)
		require.Equal(t, commandline.ExitOK, code)
		require.Regexp(t, `(?s)^usage: door ring twice NAME \[--loud\]\n\nring\.\n\n  --loud +ring again\n  --where DOOR +which DOOR is meant \(default front\)\n\n.*exits with 0`, out)
		require.NotContains(t, out, "ring once", "other commands are not listed")
	}
}

// Everything after -- is data, even if it has the form of a flag.
func TestAnOperandThatLooksLikeAFlagStandsBehindDashes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		out  string
	}{
		{[]string{"ring", "twice", "--", "--loud"}, "{name:--loud loud:false where:front}"},
		{[]string{"ring", "twice", "--loud", "--", "--where=back"}, "{name:--where=back loud:true where:front}"},
		{[]string{"ring", "twice", "--", "--"}, "{name:-- loud:false where:front}"},
	} {
		code, out, errOut := do(nil, c.args...)
		require.Equal(t, commandline.ExitOK, code, errOut)
		require.Equal(t, c.out, out)
	}
	code, _, errOut := do(nil, "ring", "twice", "--", "ann", "--loud")
	require.Equal(t, commandline.ExitUsage, code)
	require.Contains(t, errOut, `does not take "--loud"`)
}

func TestTheVersionIsPrinted(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"version"}, {"--version"}} {
		code, out, _ := do(nil, args...)
		require.Equal(t, commandline.ExitOK, code)
		require.Regexp(t, `^door \S+, built by go1\.\S+\n$`, out)
	}
	_, out, _ := do(nil, "version", "--json")
	require.Contains(t, out, `"program": "door"`)
}

func TestBashCompletesCommandsAndFlags(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash here")
	}
	_, script, _ := do(nil, "completion", "bash")
	for typed, want := range map[string]string{
		"":                     "run ring version completion help",
		"r":                    "run ring",
		"ring ":                "twice once",
		"ring twice ":          "--loud --where",
		"ring twice --l":       "--loud",
		"ring once --":         "--where",
		"completion ":          "bash zsh fish",
		"ring twice ann --whe": "--where",
	} {
		words := strings.Split("door "+typed, " ")
		run := exec.CommandContext(t.Context(), bash, append([]string{"-c", script + `COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _door; echo "${COMPREPLY[*]}"`, "bash"}, words...)...)
		out, err := run.CombinedOutput()
		require.NoError(t, err, string(out))
		require.Equal(t, want, strings.TrimSpace(string(out)), "typed: %q", typed)
	}
	code, _, errOut := do(nil, "completion", "tcsh")
	require.Equal(t, commandline.ExitUsage, code)
	require.Contains(t, errOut, "bash, zsh or fish")
}

// typedInZsh is sent through a terminal: zsh completes only a line that is being edited. Each line
// ends with a tab and a return.
const typedInZsh = `zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z 'PS1=; unset zle_bracketed_paste; autoload -Uz compinit && compinit -D -u; source <(print -r -- "$DOOR")
door() { print -r -- "GOT" "[$*]" }; zstyle ":completion:*" insert-tab false; print RE''ADY'
zpty -r -m z said '*READY*'
for typed; do
	zpty -w -n z "door $typed"$'\t\r'
	zpty -r -m z said '*GOT \[*\]*'
	print -r -- "${${said##*GOT \[}%%\]*}"
done
zpty -d z
`

func TestZshCompletesCommandsAndFlags(t *testing.T) {
	t.Parallel()
	zsh, err := exec.LookPath("zsh")
	if err != nil {
		t.Skip("there is no zsh here")
	}
	_, script, _ := do(nil, "completion", "zsh")
	run := exec.CommandContext(t.Context(), zsh, "-f", "-c", typedInZsh, "zsh", "ru", "ring tw", "ring twice --l", "completion fi", "ring twice ann --whe")
	run.Env = append(os.Environ(), "DOOR="+script)
	out, err := run.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Equal(t, []string{"run", "ring twice", "ring twice --loud", "completion fish", "ring twice ann --where"}, strings.Split(strings.TrimSpace(string(out)), "\n"))
}

func TestFishCompletesCommandsAndFlags(t *testing.T) {
	t.Parallel()
	fish, err := exec.LookPath("fish")
	if err != nil {
		t.Skip("there is no fish here")
	}
	_, script, _ := do(nil, "completion", "fish")
	for typed, want := range map[string]string{ // fish sorts, and offers flags behind a hyphen
		"":                     "completion help ring run version",
		"ru":                   "run",
		"ring ":                "once twice",
		"ring twice --":        "--loud --where",
		"completion ":          "bash fish zsh",
		"ring twice ann --whe": "--where",
		"ring once --l":        "",
	} {
		run := exec.CommandContext(t.Context(), fish, "--no-config", "-c", script+"complete -C 'door "+typed+"'")
		out, err := run.CombinedOutput()
		require.NoError(t, err, string(out))
		require.Equal(t, want, strings.Join(strings.Fields(string(out)), " "), "typed: %q", typed)
	}
}

func TestUnparsedCommandsAreNotRun(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"knock"}, "door: wrong usage: there is no command \"knock\"; `door help` lists them\n"},
		{[]string{"rign"}, "door: wrong usage: there is no command \"rign\"; did you mean ring? `door help` lists them\n"},
		{[]string{"ring"}, "door: wrong usage: \"ring\" is not a whole command; choose one of these:\n  ring twice NAME [--loud]\n    ring\n  ring once\n    knock\n"},
		{[]string{"ring", "thrice"}, "door: wrong usage: there is no command \"ring thrice\"; choose one of these:\n  ring twice NAME [--loud]\n    ring\n  ring once\n    knock\n"},
		{[]string{"ring", "twice"}, "door: wrong usage: door ring twice needs a name\n"},
		{[]string{"ring", "twice", "--", "-ann", "--loud"}, "door: wrong usage: door ring twice does not take \"--loud\"; flags stand before --\n"},
		{[]string{"ring", "twice", "ann", "bob"}, "door: wrong usage: door ring twice does not take \"bob\"\n"},
		{[]string{"ring", "once", "ann"}, "door: wrong usage: door ring once does not take \"ann\"\n"},
		{[]string{"ring", "once", "--loud"}, "door: wrong usage: door ring once: flag provided but not defined: -loud; see `door ring once --help`\n"},
		{[]string{"run", "--where=back"}, "door: wrong usage: door run: flag provided but not defined: -where; see `door run --help`\n"},
	} {
		code, out, errOut := do(nil, c.args...)
		require.Equal(t, commandline.ExitUsage, code)
		require.Empty(t, out)
		require.Equal(t, c.want, errOut)
	}
}

func TestTheExitCodeDistinguishesASettingFromAProblem(t *testing.T) {
	t.Parallel()
	setting := settings.Problems{errors.New("URI: is required")}
	for _, c := range []struct {
		result error
		args   []string
		code   int
		prints bool
	}{
		{errors.New("away"), []string{"ring", "once"}, commandline.ExitProblem, true},
		{commandline.ErrFound, []string{"ring", "once"}, commandline.ExitProblem, false},
		{setting, []string{"ring", "once"}, commandline.ExitUsage, true},
		{fmt.Errorf("%w: which?", commandline.ErrUsage), []string{"ring", "once"}, commandline.ExitUsage, true},
		{errors.New("away"), []string{"run"}, commandline.ExitProblem, false}, // it has logged it
		{setting, []string{"run"}, commandline.ExitUsage, true},
	} {
		code, _, errOut := do(c.result, c.args...)
		require.Equal(t, c.code, code)
		if c.prints {
			require.Equal(t, "door: "+c.result.Error()+"\n", errOut)
		} else {
			require.Empty(t, errOut)
		}
	}
}

func TestADiagnosisIsShownAndJudged(t *testing.T) {
	t.Parallel()
	var well, ill checkup.Findings
	well.OK("lock", "it turns")
	ill.Problem("lock", "oil it", "it is stuck")
	var out bytes.Buffer
	require.NoError(t, commandline.Diagnose(&out, false, well))
	require.Regexp(t, `(?s)ok +settings .*ok +lock +it turns`, out.String())
	out.Reset()
	require.ErrorIs(t, commandline.Diagnose(&out, true, ill), commandline.ErrFound)
	require.Contains(t, out.String(), `"remedy": "oil it"`)
}
