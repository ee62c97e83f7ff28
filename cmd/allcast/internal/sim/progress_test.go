package sim

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
	"github.com/allcast/allcast/internal/sim"
)

// Only people at a terminal see progress: not --json, and not a file or a pipe.
func TestProgressIsForTerminals(t *testing.T) {
	for _, c := range []struct {
		args     string
		terminal bool
		want     bool
	}{
		{"", true, true},
		{"", false, false},
		{" --json", true, false},
	} {
		shown := false
		all := &table{Sim: Command{
			simulate: func(cfg sim.Config) (*sim.Result, error) {
				shown = cfg.Progress != nil
				return fine(cfg)
			},
			isTerminal: func(io.Writer) bool { return c.terminal },
		}}
		o := clitest.Run(all, strings.Fields("sim broadcast --topology star:3"+c.args)...)
		if o.Status != cli.StatusOK || shown != c.want || o.Stderr != "" {
			t.Errorf("%q on a terminal %v: shown %v, status %d, stderr %q", c.args, c.terminal, shown, o.Status, o.Stderr)
		}
	}
	if cli.IsTerminal(&strings.Builder{}) {
		t.Error("a buffer is no terminal")
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if cli.IsTerminal(f) {
		t.Error("a file is no terminal")
	}
}
