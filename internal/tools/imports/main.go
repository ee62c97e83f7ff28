// Command imports draws the packages of this repository into docs/packages.md. Run it
// from the root of the repository with `make packages`. It fails if an import breaks
// the table of layers in internal/archtest.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/allcast/allcast/internal/archtest"
)

func main() {
	if err := run("docs/packages.md"); err != nil {
		fmt.Fprintln(os.Stderr, "imports:", err)
		os.Exit(1)
	}
}

func run(file string) error {
	g, _, _, err := archtest.Load(archtest.Module + "/...")
	if err != nil {
		return err
	}
	if wrong := archtest.Check(g); wrong != nil {
		return errors.New(strings.Join(wrong, "\n"))
	}
	return os.WriteFile(file, []byte(archtest.Page(g)), 0o644)
}
