package commandline

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// completionCommand prints a script with which a shell completes the program's commands and flags.
func completionCommand[D, R any](p Program[D, R]) Command[D, R] {
	var shell string
	return Command[D, R]{
		Name: "completion", Takes: "bash|zsh|fish", Operand: true,
		Summary: "a script that lets the shell complete commands and flags: source <(" + p.Name + " completion bash)",
		Check: func(operand string, _ *R) error {
			if shell = operand; !slices.Contains([]string{"bash", "zsh", "fish"}, shell) {
				return errors.New("needs the shell: bash, zsh or fish")
			}
			return nil
		},
		Local: func(out io.Writer) error {
			script := p.bash()
			switch shell {
			case "zsh":
				script = "autoload -U +X bashcompinit && bashcompinit\n" + script
			case "fish":
				script = p.fish()
			}
			_, err := io.WriteString(out, script)
			return err
		},
	}
}

// words returns the words that can follow, by the words before them (empty at the beginning): the
// next words of commands, or a command's flags.
func (p Program[D, R]) words() map[string][]string {
	follow := map[string][]string{}
	add := func(before, word string) {
		if !slices.Contains(follow[before], word) {
			follow[before] = append(follow[before], word)
		}
	}
	for _, c := range p.all() {
		before := ""
		for word := range strings.FieldsSeq(c.Name) {
			add(before, word)
			before = strings.TrimSpace(before + " " + word)
		}
		p.flags(c, new(R)).VisitAll(func(f *flag.Flag) { add(before, "--"+f.Name) })
	}
	follow["completion"] = []string{"bash", "zsh", "fish"}
	follow["help"] = slices.Clone(follow[""])
	return follow
}

// bash is for zsh, too, which reads the length of a part of an array as arithmetic only where it is
// written so.
func (p Program[D, R]) bash() string {
	var b strings.Builder
	follow := p.words()
	fmt.Fprintf(&b, "_%s() {\n\tlocal words\n\tcase \"${COMP_WORDS[*]:1:$((COMP_CWORD - 1))}\" in\n", p.Name)
	// Backwards, so that "token set" is tried before "token": a pattern matches everything that
	// begins with it, because there may be flags and operands in between.
	befores := slices.Sorted(maps.Keys(follow))
	slices.Reverse(befores)
	for _, before := range befores {
		pattern := `"` + before + `"`
		if before != "" {
			pattern += ` | "` + before + ` "*`
		}
		fmt.Fprintf(&b, "\t%s) words='%s' ;;\n", pattern, strings.Join(follow[before], " "))
	}
	fmt.Fprintf(&b, "\tesac\n\tCOMPREPLY=($(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n}\ncomplete -F _%s %s\n", p.Name, p.Name)
	return b.String()
}

func (p Program[D, R]) fish() string {
	var b strings.Builder
	fmt.Fprintf(&b, "complete -c %s -f\n", p.Name)
	follow := p.words()
	for _, before := range slices.Sorted(maps.Keys(follow)) {
		// The program's name stands before the words: of no words at all, fish would make no
		// argument.
		given := "(string join ' ' " + p.Name + " (commandline -poc)[2..-1])"
		typed := strings.TrimSpace(p.Name + " " + before)
		for _, word := range follow[before] {
			if flagName, ok := strings.CutPrefix(word, "--"); ok {
				fmt.Fprintf(&b, "complete -c %s -n \"string match -q -- '%s*' %s\" -l %s\n", p.Name, typed, given, flagName)
			} else {
				fmt.Fprintf(&b, "complete -c %s -n \"test '%s' = %s\" -a %s\n", p.Name, typed, given, word)
			}
		}
	}
	return b.String()
}
