//go:build linux && cgo

package tests

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/allcast/allcast/internal/launch"
)

// The examples compile as their Makefile says, and do as they say.
func TestExamples(t *testing.T) {
	if _, err := exec.LookPath("pkg-config"); err != nil {
		t.Skip("pkg-config is not installed")
	}
	dir := t.TempDir()
	for _, name := range []string{"Makefile", "broadcast.c", "event_loop.c"} {
		text, err := os.ReadFile(filepath.Join("../../../examples/c", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := command("make", "-s", "-C", dir, "PKG_CONFIG_PATH="+plain(""), "CFLAGS=-Wall -Wextra -Werror"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"broadcast": {
			"rank 0 received bytes with the sum 3145728", "rank 1 received bytes with the sum 3145728",
			"rank 2 received bytes with the sum 3145728",
		},
		"event_loop": {"rank 0 received 8 blocks", "rank 1 received 8 blocks", "rank 2 received 8 blocks"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, messages bytes.Buffer
			err := launch.Run(t.Context(), launch.Config{
				Ranks: 3, Command: []string{filepath.Join(dir, name)}, Stdout: &out, Stderr: &messages,
				Prefix: func(int, bool) string { return "" },
			})
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			slices.Sort(lines)
			if err != nil || !slices.Equal(lines, want) {
				t.Errorf("ended with %v and printed %q, want %q\n%s", err, lines, want, &messages)
			}
		})
	}
}
