//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
)

func candidates(t *testing.T, words ...string) []string {
	t.Helper()
	var out strings.Builder
	if status := cli.Run(&commands{}, append([]string{"__complete"}, words...), &out, os.Stderr); status != cli.StatusOK {
		t.Fatalf("status %d", status)
	}
	var all []string
	for line := range strings.Lines(out.String()) {
		word, _, _ := strings.Cut(line, "\t")
		all = append(all, word)
	}
	return all
}

func TestCandidates(t *testing.T) {
	for _, c := range []struct{ words, want, not string }{
		{"", "sim", "--json"},
		{"si", "sim", "perf"},
		{"sim ", "allgather", "perf"},
		{"sim allg", "allgather+reduce-scatter", "broadcast"},
		{"sim allgather --to", "--topology", "--json"},
		{"sim allgather --topology star:8 --fl", "--flow", "--topology"},
		{"sim allgather --flow ", "credit", "allgather"},
		{"completion ", "fish", "--json"},
		{"model ", "traffic", "sim"},
	} {
		got := candidates(t, strings.Split(c.words, " ")...)
		if !slices.Contains(got, c.want) || slices.Contains(got, c.not) {
			t.Errorf("%q: %v; want %s, and not %s", c.words, got, c.want, c.not)
		}
	}
	if got := candidates(t, "run", "-n", "2", "--", "p"); got != nil {
		t.Errorf("arguments of another program: %v", got)
	}
}

// Each shell loads its script, and completes with it.
func TestCompletionScripts(t *testing.T) {
	dir := t.TempDir()
	answer := "#!/bin/sh\n[ \"$1\" = __complete ] && printf 'allgather\\tabout it\\nallreduce\\tabout that\\n'\n"
	if err := os.WriteFile(filepath.Join(dir, "allcast"), []byte(answer), 0o700); err != nil {
		t.Fatal(err)
	}
	for shell, try := range map[string][]string{
		"bash": {"--norc", "-c", `source "$1"; COMP_WORDS=(allcast sim all); COMP_CWORD=2; _allcast
printf '%s\n' "${COMPREPLY[@]}"`, "-"},
		"zsh": {"-f", "-c", `autoload -U compinit; compinit -u -D; source "$1"
_describe() { printf '%s\n' "${(@P)2}"; }; words=(allcast sim all); CURRENT=3; _allcast`, "-"},
		"fish": {"--no-config", "-c", `source $argv[1]; complete -C 'allcast sim all'`},
	} {
		exe, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("%s is not in PATH: its script was not tested", shell)
			continue
		}
		var script strings.Builder
		if status := cli.Run(&commands{}, []string{"completion", shell}, &script, os.Stderr); status != cli.StatusOK {
			t.Fatalf("completion %s: status %d", shell, status)
		}
		file := filepath.Join(dir, shell)
		if err := os.WriteFile(file, []byte(script.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), exe, append(try, file)...)
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir, "ZDOTDIR="+dir)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "allgather") || !strings.Contains(string(out), "allreduce") {
			t.Errorf("%s: %v\n%s", shell, err, out)
		}
	}
}
