//go:build linux

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// machine is where and when a row was measured.
type machine struct {
	Began      string `json:"began"`
	Kernel     string `json:"kernel"`
	Processor  string `json:"processor"`
	Processors int    `json:"processors"`
	Load       string `json:"load"` // load averages over 1, 5 and 15 minutes before the start
}

func newMachine() machine {
	m := machine{
		Began: time.Now().UTC().Format("2006-01-02 15:04 UTC"), Kernel: firstLine("/proc/sys/kernel/osrelease"),
		Processors: runtime.NumCPU(), Processor: runtime.GOARCH,
		Load: strings.Join(strings.Fields(firstLine("/proc/loadavg") + " - -")[:3], " "),
	}
	info, _ := os.ReadFile("/proc/cpuinfo") // empty if it is not readable
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			m.Processor = strings.TrimSpace(value)
			break
		}
	}
	return m
}

func (m *machine) String() string {
	return fmt.Sprintf("%s; %d x %s, Linux %s, load average before: %s",
		m.Began, m.Processors, m.Processor, m.Kernel, m.Load)
}

// firstLine returns the first line of a file, or "unknown".
func firstLine(name string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

// spread is the distribution of a value over the rounds.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func newSpread(v []float64) spread {
	v = slices.Sorted(slices.Values(v))
	return spread{Median: (v[len(v)/2] + v[(len(v)-1)/2]) / 2, Min: v[0], Max: v[len(v)-1]}
}

func (s spread) String() string {
	digits := 2
	switch {
	case s.Median >= 100:
		digits = 0
	case s.Median >= 10:
		digits = 1
	}
	if s.Min == s.Max {
		return fmt.Sprintf("%.*f", digits, s.Median)
	}
	return fmt.Sprintf("%.*f (%.*f-%.*f)", digits, s.Median, digits, s.Min, digits, s.Max)
}

// result is a measured row, as it is printed in JSON.
type result struct {
	Row      string            `json:"row"`
	About    string            `json:"about"`
	Commands []string          `json:"commands"`
	Machine  machine           `json:"machine"`
	Skipped  string            `json:"skipped,omitempty"` // the reason why the row was not measured
	Rounds   int               `json:"rounds"`
	Seconds  float64           `json:"seconds"`
	Figures  []figureResult    `json:"figures"`
	Values   map[string]spread `json:"values"`   // by name
	Compared []string          `json:"compared"` // names of the values that figures compare
	Unit     string            `json:"unit"`     // of compared values
}

type figureResult struct {
	Name   string `json:"name"`
	Unit   string `json:"unit"`
	Value  spread `json:"value"`
	Wanted string `json:"wanted,omitempty"`
	Met    bool   `json:"met"`
}

// newResult returns the row's result without figures.
func newResult(r *row) *result {
	res := &result{
		Row: r.name, About: r.about, Machine: newMachine(), Values: make(map[string]spread), Unit: cmp.Or(r.unit, "us"),
	}
	for i := range r.runs {
		res.Commands = append(res.Commands, r.runs[i].line)
	}
	return res
}

// compare computes the figures and the values.
func (res *result) compare(r *row, rounds []values) error {
	res.Rounds = len(rounds)
	for i := range r.figures {
		f := &r.figures[i]
		v, err := f.values(rounds)
		if err != nil {
			return err
		}
		s := newSpread(v)
		res.Figures = append(res.Figures, figureResult{f.name, f.unit, s, f.wanted(), f.met(s.Median)})
		if len(f.to) > 0 {
			for _, name := range append([]string{f.of}, f.to...) {
				if !slices.Contains(res.Compared, name) {
					res.Compared = append(res.Compared, name)
				}
			}
		}
	}
	for name := range rounds[0] {
		v, err := column(rounds, name)
		if err != nil {
			return err
		}
		res.Values[name] = newSpread(v)
	}
	return nil
}

// print prints the result as text or as one JSON object.
func (res *result) print(out io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(res)
	}
	_, _ = fmt.Fprintf(out, "\n%s: %s\n%v\n", res.Row, res.About, &res.Machine)
	for _, c := range res.Commands {
		_, _ = fmt.Fprintf(out, "    %s\n", c)
	}
	if res.Skipped != "" {
		_, err := fmt.Fprintf(out, "not measured: %s\n", res.Skipped)
		return err
	}
	_, _ = fmt.Fprintf(out, "Medians of %d rounds (min-max), in %.0f s.\n", res.Rounds, res.Seconds)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "figure\tmedian\tunit\twanted\t")
	for _, f := range res.Figures {
		_, _ = fmt.Fprintf(t, "%s\t%v\t%s\t%s\t%s\n", f.Name, f.Value, f.Unit, f.Wanted, f.verdict())
	}
	_, _ = fmt.Fprintln(t, "value\tmedian\t\t\t")
	for _, name := range slices.Sorted(maps.Keys(res.Values)) {
		_, _ = fmt.Fprintf(t, "%s\t%v\t\t\t\n", name, res.Values[name])
	}
	return t.Flush()
}

// verdict is empty if nothing is wanted of the figure.
func (f *figureResult) verdict() string {
	switch {
	case f.Wanted == "":
		return ""
	case f.Met:
		return "met"
	}
	return "missed"
}

// pageWidth is the longest line of a page, except for tables.
const pageWidth = 100

// wrap breaks a text at spaces. All lines but the last end with the suffix, and all but the first start with the
// indentation.
func wrap(text, suffix, indent string) string {
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+1+len(word)+len(suffix) > pageWidth:
			b.WriteString(suffix + "\n" + indent)
			column = len(indent)
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String() + "\n"
}

// markdown returns the row's section of a page.
func (res *result) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n%s\n```\n", res.Row, wrap(res.About+".", "", ""))
	for _, c := range res.Commands {
		b.WriteString(wrap(c, " \\", "    "))
	}
	b.WriteString("```\n\n")
	if res.Skipped != "" {
		b.WriteString(wrap("Not measured: "+res.Skipped+".", "", ""))
		return b.String()
	}
	how := fmt.Sprintf("%v. Medians of %d rounds, with minimum and maximum.", &res.Machine, res.Rounds)
	b.WriteString(wrap(how, "", ""))
	b.WriteString("\n| figure | median | wanted | |\n|---|--:|--:|---|\n")
	for _, f := range res.Figures {
		fmt.Fprintf(&b, "| %s | %v %s | %s | %s |\n", f.Name, f.Value, f.Unit, f.Wanted, f.verdict())
	}
	if len(res.Compared) > 0 {
		fmt.Fprintf(&b, "\n| value | median, in %s |\n|---|--:|\n", res.Unit)
		for _, name := range res.Compared {
			fmt.Fprintf(&b, "| %s | %v |\n", name, res.Values[name])
		}
	}
	return b.String()
}
