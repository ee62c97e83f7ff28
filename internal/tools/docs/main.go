// Command docs writes the pages under docs/ about the paper and about the packages. Run it from the
// root of the repository with `make docs` or `make packages`. Arguments name the pages to write; the
// default is all.
package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/allcast/allcast/internal/archtest"
	"github.com/allcast/allcast/internal/paper"
)

func main() {
	for _, p := range append(paper.Pages, paper.Page{File: "docs/packages.md", Text: packages}) {
		if len(os.Args) > 1 && !slices.Contains(os.Args[1:], p.File) {
			continue
		}
		text, err := p.Text()
		if err == nil {
			err = os.WriteFile(p.File, []byte(text), 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "docs:", p.File, err)
			os.Exit(1)
		}
	}
}

// packages draws the packages of this repository. It fails if an import breaks the table of layers in
// internal/archtest.
func packages() (string, error) {
	g, _, _, err := archtest.Load(archtest.Module + "/...")
	if err != nil {
		return "", err
	}
	if wrong := archtest.Check(g); wrong != nil {
		return "", errors.New(strings.Join(wrong, "\n"))
	}
	return archtest.Page(g), nil
}
