package paper

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/allcast/allcast/internal/testenv"
)

const root = "../.."

func checkPage(t *testing.T, file string, text func() (string, error)) {
	t.Helper()
	want, err := text()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%[1]s is out of date: run make docs PAGES=%[1]s", file)
	}
}

func TestClaimsPageIsCurrent(t *testing.T) { checkPage(t, "docs/claims.md", claimsPage) }

func TestAcceleratorPageIsCurrent(t *testing.T) {
	if testenv.Race {
		t.Skip("about a hundred runs of the model: only without the race detector")
	}
	checkPage(t, "docs/dpa.md", accelerator)
}
