package terminal_test

import (
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/terminal"
)

// nasty are texts that a shell or a terminal would act on.
var nasty = []string{
	"", "a", "order-17", "--all", "-n", "it's", `a "b"`, "$(touch x)", "`touch x`", "a;b", "a b", "a\nb", "a\n", "\n\n", "\ta",
	"~", "a=b", "*", "?", "[a]", "{a,b}", "!x", "a!\x1b", "#a", `\`, `\\n`, "%s", "%d\x01%", "\x1b[2J\x1b]0;title\a", "é", "日本", "\u202egpj.exe", "\xff\xfe",
	"\xc3", "\U000e0001", "-\x1b", "'\x1b'", "a\r", "$HOME\x07\n", "&", "|", "<", ">", "\\033", "\u2028",
}

func TestAQuotedTextIsThatTextToEveryShell(t *testing.T) {
	t.Parallel()
	texts := nasty
	random := rand.New(rand.NewPCG(1, 2))
	const alphabet = "ab'\"\\$`!%-#~ \n\t\x1b\x07\x7f\xff\u202eé=&;|*?(){}[]<>"
	for range 200 {
		var b strings.Builder
		for range random.IntN(12) {
			b.WriteByte(alphabet[random.IntN(len(alphabet))])
		}
		texts = append(texts, b.String())
	}
	shells := 0
	for _, shell := range []string{"sh", "bash", "dash", "busybox", "zsh", "ksh"} {
		path, err := exec.LookPath(shell)
		if err != nil {
			continue
		}
		shells++
		var script strings.Builder
		script.WriteString(`show() { for word do printf '%s\0' "$word"; done; }` + "\n")
		for _, text := range texts {
			script.WriteString(terminal.Paste(text, "show", "replay") + "\n")
		}
		args := []string{path, "-s"}
		if shell == "busybox" {
			args = []string{path, "sh", "-s"}
		}
		run := exec.CommandContext(t.Context(), args[0], args[1:]...)
		run.Stdin = strings.NewReader(script.String())
		out, err := run.Output()
		require.NoError(t, err, shell)
		words := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		require.Len(t, words, 3*len(texts), shell)
		for i, text := range texts {
			require.Equal(t, []string{"replay", "--", text}, words[3*i:3*i+3], "%s: %q", shell, text)
		}
	}
	if shells == 0 {
		t.Skip("there is no shell here")
	}
}

func TestNothingThatIsShownActsOnATerminal(t *testing.T) {
	t.Parallel()
	for _, text := range nasty {
		for _, shown := range []string{terminal.Printable(text), strings.TrimRight(terminal.Quote(text), "\n'")} {
			require.NotRegexp(t, `[\x00-\x08\x0b-\x1f\x7f]|\x{202e}|\x{2028}|\x{fffd}`, shown, "%q", text)
		}
	}
	require.Equal(t, `a\tb\n\x1b[2J\u202e\xff é`, terminal.Printable("a\tb\n\x1b[2J\u202e\xff é"))
	require.Equal(t, "order-17", terminal.Quote("order-17"))
	require.Equal(t, `projector parked drop --yes -- 'it'\''s'`, terminal.Paste("it's", "projector parked drop", "--yes"))
}
