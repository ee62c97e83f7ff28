package testenv

import (
	"os/exec"
	"strings"
	"testing"
)

// Promtool runs Prometheus's promtool, which must succeed and print no complaint. It reports false if promtool is not
// installed.
func Promtool(t testing.TB, stdin string, args ...string) bool {
	t.Helper()
	exe, err := exec.LookPath("promtool")
	if err != nil {
		t.Log("promtool is not in PATH: the metrics, dashboards and alerts were not checked with it")
		return false
	}
	cmd := exec.CommandContext(t.Context(), exe, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil || stdin != "" && len(out) > 0 { // linting complains without an error
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return true
}
