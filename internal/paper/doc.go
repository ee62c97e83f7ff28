// Package paper is the registry of the paper's claims: what the paper says, what Allcast
// measures, and which test, command or page checks it. It also writes the pages that
// reproduce the paper's figures. Neither the library nor the simulator imports it.
package paper

import (
	"embed"
	"strings"
	"text/template"
)

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

//go:embed *.md.tmpl
var templateFiles embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"item": item, "subjects": registry.subjects,
	"wrap": wrap, "places": places, "number": func(index int) int { return index + 1 },
	"share": share, "overBound": overBound,
	"join": strings.Join,
}).ParseFS(templateFiles, "*.md.tmpl"))

// render fills in the template of a page.
func render(name string, data any) (string, error) {
	var b strings.Builder
	err := templates.ExecuteTemplate(&b, name, data)
	return b.String(), err
}
