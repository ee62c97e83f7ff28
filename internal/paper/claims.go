package paper

import (
	"bytes"
	_ "embed" // for the registry
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/allcast/allcast/internal/figure"
)

// Testbed is the network on which the paper measured: 188 hosts, 12 leaves and 6 spines.
const Testbed = "fat-tree:188,12,6"

// registry is the contents of claims.json.
type registry struct {
	Claims   []claim   // in the order of their numbers; tests and pages refer to the IDs
	Figures  []exhibit // in the paper's order
	Slips    []string  // mistakes in the paper's own numbers
	Mistakes []mistake // faults of the authors' prototypes
}

// claim is one statement of the paper with a number, and what Allcast finds.
type claim struct {
	ID        string
	Where     string // in the paper
	Title     string
	Paper     string // statement and number
	Ours      string // measurement
	Tolerance string
	Verdict   Verdict // that an entry must reach; changed only with an explanation in Ours
	Checks    []check
}

// exhibit is a figure, a table or an appendix of the paper.
type exhibit struct {
	ID        string // "fig11", "table1", "appA"
	Where     string
	Title     string
	Paper     string
	Points    []Points // all that the text, the captions and the tables say; the figures themselves are blank
	Tolerance string
	Verdict   Verdict
	Claims    []string // IDs of the claims that it is about
}

// Points are a series of numbers in the paper.
type Points struct {
	Name  string         `json:"name"`
	X     string         `json:"x"` // quantity and unit, as Y
	Y     string         `json:"y"`
	Names []string       `json:"names,omitempty"` // of the X values 0, 1, ..., if those are no numbers
	Data  []figure.Point `json:"data"`
}

// mistake is a fault of a prototype. Its checks fail if Allcast repeats it.
type mistake struct {
	Text   string
	Checks []check
}

// check is a place that checks a claim, in one of the forms "DIRECTORY TEST", "allcast ARGUMENTS",
// "make TARGET" and "docs/PAGE".
type check string

//go:embed claims.json
var registryText []byte

func loadRegistry() (r registry, err error) {
	d := json.NewDecoder(bytes.NewReader(registryText))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, fmt.Errorf("internal/paper/claims.json: %w", err)
	}
	return r, nil
}

// claimsPage writes the registry as docs/claims.md.
func claimsPage() (string, error) {
	r, err := loadRegistry()
	if err != nil {
		return "", err
	}
	return render("claims.md.tmpl", r)
}

// places writes checks as Markdown.
func places(checks []check) string {
	var out []string
	for _, c := range checks {
		kind, rest, _ := strings.Cut(string(c), " ")
		if page, ok := strings.CutPrefix(kind, "docs/"); ok {
			out = append(out, fmt.Sprintf("[%s](%[1]s)", page))
		} else if kind == "allcast" || kind == "make" {
			out = append(out, fmt.Sprintf("`%s`", c))
		} else {
			out = append(out, fmt.Sprintf("`%s` in `%s`", rest, kind))
		}
	}
	return strings.Join(out, ", ")
}

// words matches what a line break must not divide: words, and all between backquotes.
var words = regexp.MustCompile("([^ `]|`[^`]*`)+")

// item returns a list item with lines of at most 100 columns.
func item(bullet, text string) string {
	var b strings.Builder
	line := bullet
	for _, word := range words.FindAllString(text, -1) {
		if len(line)+1+len(word) > 100 {
			b.WriteString(line + "\n")
			line = strings.Repeat(" ", len(bullet))
		}
		line += " " + word
	}
	return b.String() + line
}

// wrap returns a paragraph with lines of at most 100 columns.
func wrap(text string) string { return strings.ReplaceAll(item("", text)[1:], "\n ", "\n") }
