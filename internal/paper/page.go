package paper

import (
	"fmt"
	"regexp"
	"strings"
)

// claimsPage writes the registry as docs/claims.md.
func claimsPage() (string, error) {
	var b strings.Builder
	b.WriteString(`# The paper's claims, and where they are checked

*Network-Offloaded Bandwidth-Optimal Broadcast and Allgather for Distributed AI*, SC 2024. Tests and
pages refer to the claims by these numbers. ` + "`make docs PAGES=docs/claims.md`" + ` writes this page from
` + "`internal/paper/claims.go`" + `; a test checks that all tests, commands and pages named here exist.
`)
	for _, c := range Claims {
		fmt.Fprintf(&b, "\n## %s: %s (%s)\n\n", c.ID, c.Title, c.Where)
		wrap(&b, "- ", "**The paper:** "+c.Paper)
		wrap(&b, "- ", "**Here:** "+c.Ours)
		wrap(&b, "- ", "**Tolerance:** "+c.Tolerance+".")
		wrap(&b, "- ", "**Checked by:** "+places(c.Checks)+".")
	}
	b.WriteString("\n## Slips in the paper\n\n")
	for _, s := range slips {
		wrap(&b, "- ", s)
	}
	b.WriteString("\n## Mistakes of prototypes that tests here guard against\n\n")
	for i, m := range mistakes {
		wrap(&b, fmt.Sprintf("%d. ", i+1), m.text+" ("+places(m.checks)+")")
	}
	return b.String(), nil
}

// places writes checks as Markdown.
func places(checks []Check) string {
	var out []string
	for _, c := range checks {
		switch {
		case c.Test != "":
			out = append(out, fmt.Sprintf("`%s` in `%s`", c.Test, c.Package))
		case c.Command != "":
			out = append(out, fmt.Sprintf("`allcast %s`", c.Command))
		case c.Target != "":
			out = append(out, fmt.Sprintf("`make %s`", c.Target))
		case c.Page != "":
			name := strings.TrimPrefix(c.Page, "docs/")
			out = append(out, fmt.Sprintf("[%s](%s)", name, name))
		}
	}
	return strings.Join(out, ", ")
}

// words matches what a line break must not divide: words, and all between backquotes.
var words = regexp.MustCompile("([^ `]|`[^`]*`)+")

// wrap writes a list item with lines of at most 100 columns.
func wrap(b *strings.Builder, bullet, text string) {
	indent := strings.Repeat(" ", len(bullet))
	line := strings.TrimSuffix(bullet, " ")
	for _, word := range words.FindAllString(text, -1) {
		if len(line)+1+len(word) > 100 {
			b.WriteString(line + "\n")
			line = indent[1:]
		}
		line += " " + word
	}
	b.WriteString(line + "\n")
}
