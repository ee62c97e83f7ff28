package archtest

import (
	"fmt"
	"strings"
)

// Page returns docs/packages.md: the layers, and a drawing of the graph without the
// imports that follow from others.
func Page(g Graph) string {
	var b strings.Builder
	b.WriteString(`# Packages

Written by ` + "`make packages`" + ` from the imports in the source (Linux, tag ` + "`verbs`" + `, tests not counted).
The table of layers is in ` + "`internal/archtest/layers.go`" + `; a test fails on an import that it forbids.

A layer may import itself and every layer below it in this table, with the exceptions in the last
column.

| layer | contents | except |
|---|---|---|
`)
	for _, l := range Layers {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", l.Name, l.About, strings.Join(l.Except, ", "))
	}
	b.WriteString("\nAn arrow means \"imports\". Imports that follow from other arrows are left out.\n\n" +
		"```mermaid\nflowchart TD\n")
	for i, l := range Layers {
		var nodes []string
		for _, pkg := range g.Packages() {
			if at, err := layerOf(pkg); err == nil && at == i {
				nodes = append(nodes, fmt.Sprintf("    %s[\"%s\"]\n", id(pkg), label(pkg)))
			}
		}
		if len(nodes) > 0 {
			fmt.Fprintf(&b, "  subgraph layer%d [\"%s\"]\n%s  end\n", i, l.Name, strings.Join(nodes, ""))
		}
	}
	reduced := g.Reduced()
	for _, from := range g.Packages() {
		for _, to := range reduced[from] {
			fmt.Fprintf(&b, "  %s --> %s\n", id(from), id(to))
		}
	}
	b.WriteString("```\n")
	return b.String()
}

func label(pkg string) string {
	if pkg == "." {
		return "allcast"
	}
	return strings.TrimPrefix(pkg, "internal/")
}

// id is a name for Mermaid; the prefix keeps it apart from Mermaid's own words.
func id(pkg string) string { return "p_" + strings.ReplaceAll(label(pkg), "/", "_") }
