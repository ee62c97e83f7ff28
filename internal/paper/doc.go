// Package paper is the registry of the paper's claims: what the paper says, what Allcast
// measures, and which test, command or page checks it. It also writes the pages that
// reproduce the paper's figures. Neither the library nor the simulator imports it.
package paper

// A Page is a file under docs/ that `make docs` writes.
type Page struct {
	File string
	Text func() (string, error)
}

// Pages are the pages about the paper.
var Pages = []Page{
	{"docs/claims.md", claimsPage},
	{"docs/phases.md", phases},
	{"docs/collectives.md", collectives},
	{"docs/dpa.md", accelerator},
}
