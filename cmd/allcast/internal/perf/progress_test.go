package perf

import (
	"io"
	"strings"
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
)

// Rows are counted, and notes and the heading are not. A pipe shows no progress.
func TestProgress(t *testing.T) {
	var out strings.Builder
	p := &progress{all: 3}
	w := p.above(&out)
	for _, line := range []string{"# a note\n", "      bytes  algo\n", "         64  ring\n", "        128  ring\n"} {
		if _, err := io.WriteString(w, line); err != nil {
			t.Fatal(err)
		}
	}
	if p.done != 2 || !strings.HasSuffix(out.String(), "        128  ring\n") {
		t.Errorf("%d rows in\n%s", p.done, out.String())
	}
	e := &cli.Env{Stdout: &out, Stderr: &out}
	if same, _ := showProgress(e, nil); same != e {
		t.Error("progress without a terminal")
	}
}
