// Command docs writes the pages about the paper under docs/. Run it from the root of the
// repository with `make docs`. Arguments name the pages to write; the default is all.
package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/allcast/allcast/internal/paper"
)

func main() {
	for _, p := range paper.Pages {
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
