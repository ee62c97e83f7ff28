package reproduce

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"strconv"
	"time"

	"github.com/allcast/allcast/internal/paper"
)

// program marks the manifests of this package.
const program = "allcast paper"

// schema is the version of the format of all JSON files.
const schema = 1

// entryName is the name of an entry's file with all its data, in the directory of the entry.
const entryName = "entry"

// About is what a manifest says about a whole run.
type About struct {
	Build   fmt.Stringer  `json:"build"`
	Machine Machine       `json:"machine"`
	Seed    uint64        `json:"seed"`
	Quick   bool          `json:"quick"`
	Root    bool          `json:"root"` // whether labs could be built
	Flags   []string      `json:"flags"`
	Date    time.Time     `json:"date"`
	Took    time.Duration `json:"-"`
	LeftOut []string      `json:"left_out,omitempty"` // apart from the entries'
}

// Manifest describes an output directory. All that differs between two runs with the same seed is here and on the page,
// besides measured data.
type Manifest struct {
	Schema  int     `json:"schema"`
	Program string  `json:"program"`
	Seconds float64 `json:"seconds"`
	About
	Entries []ManifestEntry `json:"entries"`
	Files   []string        `json:"files"`
}

// ManifestEntry is an entry of a manifest.
type ManifestEntry struct {
	ID       string        `json:"id"`
	Verdict  paper.Verdict `json:"verdict"`
	Recorded paper.Verdict `json:"recorded"`
	Worse    bool          `json:"worse,omitempty"`
	Failed   bool          `json:"failed,omitempty"`
	Measured bool          `json:"measured,omitempty"`
	LeftOut  []string      `json:"left_out,omitempty"`
	Seconds  float64       `json:"seconds"`
}

// entryData is the file of an entry.
type entryData struct {
	Schema    int            `json:"schema"`
	ID        string         `json:"id"`
	Where     string         `json:"where"`
	Title     string         `json:"title"`
	Paper     string         `json:"paper"`
	Points    []paper.Points `json:"paper_points,omitempty"`
	Tolerance string         `json:"tolerance"`
	Recorded  paper.Verdict  `json:"recorded"`
	*paper.Outcome
}

// Write writes all results and gives the directory its name.
func (d *Directory) Write(about About, results []*Result) error {
	defer d.Discard()
	for _, r := range results {
		if err := d.writeEntry(r); err != nil {
			return err
		}
	}
	page, err := renderPage(about, results)
	if err != nil {
		return err
	}
	if err := d.write("index.html", page); err != nil {
		return err
	}
	m := Manifest{Schema: schema, Program: program, Seconds: seconds(about.Took), About: about, Files: d.files}
	for _, r := range results {
		m.Entries = append(m.Entries, ManifestEntry{
			ID: r.ID, Verdict: r.Verdict, Recorded: r.Recorded, Worse: r.Worse, Failed: r.Failed, Measured: r.Measured,
			LeftOut: r.LeftOut, Seconds: seconds(r.Took),
		})
	}
	if err := d.writeJSON(manifestFile, m); err != nil {
		return err
	}
	return d.commit()
}

func seconds(t time.Duration) float64 { return t.Round(time.Millisecond).Seconds() }

// writeEntry writes the data and the plots of an entry into a directory of its own.
func (d *Directory) writeEntry(r *Result) error {
	dir := r.ID + "/"
	if err := d.writeJSON(dir+entryName+".json", entryData{
		schema, r.ID, r.Where, r.Title, r.Paper, r.Points, r.Tolerance, r.Recorded, r.Outcome,
	}); err != nil {
		return err
	}
	for _, t := range r.Tables {
		text, err := tableCSV(t)
		if err != nil {
			return err
		}
		if err := d.write(dir+t.Name+".csv", text); err != nil {
			return err
		}
	}
	for i := range r.Figures {
		f := &r.Figures[i]
		if err := d.writeJSON(dir+f.Name+".json", &f.Figure); err != nil {
			return err
		}
		if err := d.write(dir+f.Name+".svg", []byte(r.svgs[i])); err != nil {
			return err
		}
	}
	return nil
}

func tableCSV(t paper.Table) ([]byte, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	rows := [][]string{t.Columns}
	for _, row := range t.Rows {
		cells := make([]string, len(row))
		for i, v := range row {
			cells[i] = fmt.Sprint(v)
			if f, ok := v.(float64); ok {
				cells[i] = strconv.FormatFloat(f, 'g', -1, 64)
			}
		}
		rows = append(rows, cells)
	}
	err := w.WriteAll(rows)
	return b.Bytes(), err
}
