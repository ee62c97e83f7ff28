package reproduce

import (
	"bytes"
	_ "embed" // for the page
	"fmt"
	"html/template"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allcast/allcast/internal/figure"
	"github.com/allcast/allcast/internal/paper"
)

//go:embed page.html.tmpl
var pageText string

//go:embed page.css
var pageStyle string

// maxPageRows is the number of rows of a table on the page. The CSV file has all of them.
const maxPageRows = 40

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"cell": cell, "number": isNumber, "class": verdictClass, "took": took, "value": pointValue, "at": pointAt,
	"text": withCode,
}).Parse(pageText))

// page is the data of the template.
type page struct {
	About
	Style   template.CSS
	Results []*pageEntry
	Counts  []verdictCount
	Worse   int
}

type verdictCount struct {
	Verdict paper.Verdict
	N       int
}

type pageEntry struct {
	*Result
	Plots  []plot
	Points []paper.Points
	Tables []pageTable
	See    []string // entries above with further data of this one
}

type plot struct {
	Name string
	SVG  template.HTML
}

type pageTable struct {
	paper.Table
	More int // rows that only the file has
}

func renderPage(about About, results []*Result) ([]byte, error) {
	p := page{About: about, Style: template.CSS(pageStyle)}
	counts := make(map[paper.Verdict]int)
	seen := make(map[string]string)
	for _, r := range results {
		counts[r.Verdict]++
		if r.Worse {
			p.Worse++
		}
		p.Results = append(p.Results, newPageEntry(r, seen))
	}
	for v := paper.Hit; v >= paper.CannotShow; v-- {
		p.Counts = append(p.Counts, verdictCount{v, counts[v]})
	}
	var b bytes.Buffer
	err := pageTemplate.Execute(&b, p)
	return b.Bytes(), err
}

// newPageEntry prepares an entry for the page. A claim often has the same data as its figure. The page then shows it
// once: seen has what was shown, and where.
func newPageEntry(r *Result, seen map[string]string) *pageEntry {
	e := &pageEntry{Result: r}
	isNew := func(kind string, data any) bool {
		key := fmt.Sprintf("%s %v", kind, data)
		where, shown := seen[key]
		if !shown {
			seen[key] = r.ID
		} else if !slices.Contains(e.See, where) && where != r.ID {
			e.See = append(e.See, where)
		}
		return !shown
	}
	for i, svg := range r.svgs {
		if isNew("plot", svg) {
			// figure.Draw escapes all text, and uses no ids that could clash on a page.
			e.Plots = append(e.Plots, plot{r.Figures[i].Name, template.HTML(svg)}) //nolint:gosec // see above
		}
	}
	for _, p := range r.Points {
		if isNew("points", p) {
			e.Points = append(e.Points, p)
		}
	}
	for _, t := range r.Tables {
		if !isNew("table", t) {
			continue
		}
		shown := pageTable{Table: t}
		if n := len(t.Rows); n > maxPageRows {
			shown.Rows, shown.More = t.Rows[:maxPageRows], n-maxPageRows
		}
		e.Tables = append(e.Tables, shown)
	}
	return e
}

// withCode writes a text whose code is between backquotes.
func withCode(text string) template.HTML {
	var b strings.Builder
	for i, part := range strings.Split(text, "`") {
		part = template.HTMLEscapeString(part)
		if i%2 == 1 {
			part = "<code>" + part + "</code>"
		}
		b.WriteString(part)
	}
	return template.HTML(b.String()) //nolint:gosec // all parts are escaped
}

// verdictClass is the CSS class of a verdict.
func verdictClass(v paper.Verdict) string { return strings.ReplaceAll(v.String(), " ", "-") }

func took(t time.Duration) string {
	switch {
	case t < time.Second:
		return "< 1 s"
	case t < 2*time.Minute:
		return fmt.Sprintf("%.0f s", t.Seconds())
	}
	return fmt.Sprintf("%.0f min", t.Minutes())
}

// isNumber reports whether a cell is aligned as a number.
func isNumber(v any) bool {
	switch reflect.ValueOf(v).Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8,
		reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		return true
	default:
		return false
	}
}

// cell writes a value for people: four digits, and spaces between thousands.
func cell(v any) string {
	if !isNumber(v) {
		return fmt.Sprint(v)
	}
	if x := reflect.ValueOf(v); x.CanFloat() {
		return formatFloat(x.Float())
	}
	return thousands(fmt.Sprint(v))
}

func formatFloat(f float64) string {
	switch a := math.Abs(f); {
	case a >= 1e15 || a > 0 && a < 1e-4:
		return strconv.FormatFloat(f, 'g', 4, 64)
	case a >= 1000:
		return thousands(strconv.FormatFloat(f, 'f', 0, 64))
	default:
		digits := 4
		if a > 0 {
			digits = max(0, 3-int(math.Floor(math.Log10(a))))
		}
		text := strconv.FormatFloat(f, 'f', digits, 64)
		if strings.Contains(text, ".") {
			text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
		}
		return text
	}
}

// thousands puts narrow spaces between groups of three digits, from 10 000 on.
func thousands(digits string) string {
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "−", digits[1:]
	}
	if len(digits) < 5 {
		return sign + digits
	}
	head := (len(digits)-1)%3 + 1
	text := digits[:head]
	for ; head < len(digits); head += 3 {
		text += "\u202f" + digits[head:head+3]
	}
	return sign + text
}

// pointAt writes the X value of a point of the paper.
func pointAt(p paper.Points, d figure.Point) string {
	if p.Names != nil {
		return p.Names[int(d.X)]
	}
	return formatFloat(d.X)
}

// pointValue writes the Y value of a point of the paper.
func pointValue(d figure.Point) string {
	if d.Low != d.High {
		return formatFloat(d.Low) + " to " + formatFloat(d.High)
	}
	return formatFloat(d.Y)
}
