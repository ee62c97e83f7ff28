package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// completeCommand is the first argument with which the scripts of Completion ask for the candidates of the last word.
const completeCommand = "__complete"

// Completion is "allcast completion SHELL". Its scripts ask the command itself, so they never become outdated. The
// existing completers for Kong install themselves into the user's files, or need a tag on every flag.
type Completion struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Arguments implements Arguments.
func (Completion) Arguments() (takes, needs string) {
	return "one of: bash, zsh, fish", "one of: bash, zsh, fish"
}

// Help implements kong.HelpProvider.
func (Completion) Help() string {
	return `Prints a script that completes commands, flags and their values. The shell must find allcast in PATH.

Examples:
  source <(allcast completion bash)                                      # in ~/.bashrc
  source <(allcast completion zsh)                                       # in ~/.zshrc, after compinit
  allcast completion fish >~/.config/fish/completions/allcast.fish`
}

// Run prints the script.
func (c *Completion) Run(e *Env) error {
	return e.Print(completionScripts[c.Shell])
}

var completionScripts = map[string]string{
	"bash": `_allcast() {
	local IFS=$'\n'
	COMPREPLY=($(allcast __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f 1))
	if [ ${#COMPREPLY[@]} -eq 0 ]; then
		COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))
	fi
}
COMP_WORDBREAKS=${COMP_WORDBREAKS//=/}
complete -o filenames -F _allcast allcast
`,
	"zsh": `#compdef allcast
_allcast() {
	local -a lines candidates
	lines=("${(@f)$(allcast __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
	local line
	for line in $lines; do
		[[ -n $line ]] && candidates+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
	done
	if (( $#candidates )); then
		_describe allcast candidates
	else
		_files
	fi
}
compdef _allcast allcast
`,
	"fish": `function __allcast_complete
	set -l words (commandline -opc) (commandline -ct)
	allcast __complete $words[2..-1] 2>/dev/null
end
complete -c allcast -f -n 'test -n "$(__allcast_complete)"' -a '(__allcast_complete)'
`,
}

// printCandidates prints the candidates for the last word, one per line, with a description after a tab.
func (e *Env) printCandidates(app *kong.Application, words []string) error {
	var text strings.Builder
	for _, c := range candidates(app, words) {
		fmt.Fprintf(&text, "%s\t%s\n", c.word, c.about)
	}
	return e.Print(text.String())
}

type candidate struct{ word, about string }

// candidates lists what may replace the last word.
func candidates(app *kong.Application, words []string) (all []candidate) {
	if len(words) == 0 {
		words = []string{""}
	}
	node, last := app.Node, words[len(words)-1]
	var pending *kong.Flag // flag that takes the next word as its value
	for _, w := range words[:len(words)-1] {
		switch {
		case pending != nil:
			pending = nil
		case w == "--":
			return nil // a program and its arguments follow
		case strings.HasPrefix(w, "-"):
			pending = valueFlag(node, w)
		default:
			node = childOf(node, w)
		}
	}
	add := func(word, about string) {
		if strings.HasPrefix(word, last) {
			about, _, _ = strings.Cut(about, "\n")
			all = append(all, candidate{word, about})
		}
	}
	switch {
	case pending != nil:
		for _, v := range enumOf(pending.Value) {
			add(v, "")
		}
	case strings.HasPrefix(last, "-"):
		for _, group := range node.AllFlags(true) {
			for _, f := range group {
				add("--"+f.Name, f.Help)
			}
		}
	default:
		for _, child := range node.Children {
			if !child.Hidden {
				add(child.Name, child.Help)
			}
		}
		for _, p := range node.Positional {
			for _, v := range enumOf(p) {
				add(v, "")
			}
		}
	}
	return all
}

// valueFlag returns the flag of a word if its value is the next word.
func valueFlag(node *kong.Node, word string) *kong.Flag {
	for _, group := range node.AllFlags(false) {
		for _, f := range group {
			if ("--"+f.Name == word || f.Short != 0 && "-"+string(f.Short) == word) && !f.IsBool() {
				return f
			}
		}
	}
	return nil
}

// childOf returns a subcommand, or the node itself for other words.
func childOf(node *kong.Node, word string) *kong.Node {
	i := slices.IndexFunc(node.Children, func(c *kong.Node) bool { return c.Name == word })
	if i < 0 {
		return node
	}
	return node.Children[i]
}

func enumOf(v *kong.Value) []string {
	if v.Enum == "" {
		return nil
	}
	return v.EnumSlice()
}
