package paper

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/allcast/allcast/internal/sim"
	"github.com/allcast/allcast/internal/testenv"
	"github.com/allcast/allcast/internal/topology"
)

func mustLoad(t *testing.T) registry {
	t.Helper()
	r, err := loadRegistry()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestClaimsAreComplete(t *testing.T) {
	r := mustLoad(t)
	for i, c := range r.Claims {
		if want := fmt.Sprintf("C%d", i+1); c.ID != want {
			t.Errorf("claim %d is called %s, want %s", i+1, c.ID, want)
		}
		if c.Where == "" || c.Title == "" || c.Paper == "" || c.Ours == "" || c.Tolerance == "" || len(c.Checks) == 0 {
			t.Errorf("%s: a field is empty: %+v", c.ID, c)
		}
	}
	for i, m := range r.Mistakes {
		if m.Text == "" || len(m.Checks) == 0 {
			t.Errorf("mistake %d: a field is empty: %+v", i+1, m)
		}
	}
	if len(r.Claims) == 0 || len(r.Mistakes) == 0 || len(r.Slips) == 0 {
		t.Errorf("the registry has %d claims, %d mistakes and %d slips", len(r.Claims), len(r.Mistakes), len(r.Slips))
	}
}

// Every place that a claim names must exist. The test runs the commands, because only the command
// itself knows its flags.
func TestPlacesExist(t *testing.T) {
	allcast := filepath.Join(t.TempDir(), "allcast")
	build := exec.Command("go", "build", "-o", allcast, filepath.Join(root, "cmd", "allcast"))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	makefile := readFile(t, "Makefile")
	exists := func(id string, c check) {
		kind, rest, _ := strings.Cut(string(c), " ")
		switch {
		case kind == "allcast":
			if out, err := exec.Command(allcast, strings.Fields(rest)...).CombinedOutput(); err != nil {
				t.Errorf("%s: %s: %v\n%s", id, c, err, out)
			}
		case kind == "make":
			if !strings.Contains(makefile, "\n"+rest+":") {
				t.Errorf("%s: the Makefile has no target %s", id, rest)
			}
		case strings.HasPrefix(kind, "docs/"):
			if !names(readFile(t, string(c)), id) {
				t.Errorf("%s: %s does not mention the claim", id, c)
			}
		case !hasTest(t, kind, rest):
			t.Errorf("%s: %q is no test: update internal/paper/claims.json", id, c)
		}
	}
	r := mustLoad(t)
	for _, c := range r.Claims {
		for _, check := range c.Checks {
			exists(c.ID, check)
		}
	}
	for i, m := range r.Mistakes {
		for _, check := range m.Checks {
			exists(fmt.Sprintf("mistake %d", i+1), check)
		}
	}
}

// names reports whether a page names a claim, also as part of "C11 to C14".
func names(page, id string) bool {
	if regexp.MustCompile(`\b` + id + `\b`).MatchString(page) {
		return true
	}
	var want int
	if _, err := fmt.Sscanf(id, "C%d", &want); err != nil {
		return false
	}
	for _, m := range regexp.MustCompile(`\bC\d+ to C\d+\b`).FindAllString(page, -1) {
		var from, to int
		if _, err := fmt.Sscanf(m, "C%d to C%d", &from, &to); err == nil && from <= want && want <= to {
			return true
		}
	}
	return false
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// hasTest looks for a test function in the test files of a directory.
func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == name {
				return true
			}
		}
	}
	return false
}

// C8 and C10 on the simulated testbed.
func TestTestbed(t *testing.T) {
	if testenv.Race {
		t.Skip("188 simulated hosts: only without the race detector")
	}
	g, err := topology.Parse(Testbed)
	if err != nil {
		t.Fatal(err)
	}
	simulate := func(op, algo string, bytes, segment int64) *sim.Result {
		r, err := run(t.Context(), g, op, algo, bytes, segment)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	mcast := simulate("broadcast", "mcast", 1<<20, 0)
	for algo, segment := range map[string]int64{"knomial": 0, "binomial": 0, "binary": 4 << 10} {
		tree := simulate("broadcast", algo, 1<<20, segment)
		if speedup := tree.TimeUS / mcast.TimeUS; speedup < 1.3 {
			t.Errorf("C8: multicast is %.2f times as fast as %s, want at least 1.3", speedup, algo)
		}
		if saved := float64(tree.PayloadLinkBytes) / float64(mcast.PayloadLinkBytes); saved < 1.98 {
			t.Errorf("C10: %s has %.3f times the traffic of multicast, want at least 1.98", algo, saved)
		}
	}
	const bytes = 128 << 10
	mcast, ring := simulate("allgather", "mcast", bytes, 0), simulate("allgather", "ring", bytes, 16<<10)
	if ratio := mcast.TimeUS / ring.TimeUS; ratio > 1.05 {
		t.Errorf("C8: multicast takes %.3f times as long as the ring, want at most 1.05", ratio)
	}
	if saved := float64(ring.PayloadLinkBytes) / float64(mcast.PayloadLinkBytes); saved < 1.98 || saved > 2 {
		t.Errorf("C10: the ring has %.3f times the traffic of multicast, want 1.98 to 2", saved)
	}
}
