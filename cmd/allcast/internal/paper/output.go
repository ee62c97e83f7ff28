package paper

import (
	"path/filepath"
	"strings"
	"time"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/paper"
	"github.com/allcast/allcast/internal/paper/reproduce"
)

// schema is the version of the format of JSON lines.
const schema = 1

// listed is an entry of --list.
type listed struct {
	Schema   int           `json:"schema"`
	ID       string        `json:"id"`
	Where    string        `json:"where"`
	Title    string        `json:"title"`
	Recorded paper.Verdict `json:"recorded"`
	Quick    float64       `json:"quick_seconds"` // about, on 2 cores
	Full     float64       `json:"full_seconds"`
	Needs    string        `json:"needs,omitempty"`
}

// list prints what entries there are.
func list(e *cli.Env, entries []paper.Entry) error {
	subjects := make(map[string]paper.Subject)
	for _, s := range paper.Subjects() {
		subjects[s.ID] = s
	}
	t := cli.Table{Left: true}
	t.Note("recorded: the verdict that a run must reach. Times are approximate, on 2 cores.")
	t.Row("id", "where", "title", "recorded", "quick", "full", "needs")
	for _, entry := range entries {
		s := subjects[entry.ID]
		if e.JSON {
			if err := e.PrintJSON(listed{
				schema, entry.ID, s.Where, s.Title, s.Recorded, entry.Quick.Seconds(), entry.Full.Seconds(), entry.Needs,
			}); err != nil {
				return err
			}
			continue
		}
		t.Row(entry.ID, s.Where, s.Title, s.Recorded, entry.Quick, entry.Full, entry.Needs)
	}
	if e.JSON {
		return nil
	}
	return e.PrintTable(&t)
}

// line is a result of --json.
type line struct {
	Schema    int           `json:"schema"`
	ID        string        `json:"id"`
	Where     string        `json:"where"`
	Title     string        `json:"title"`
	Paper     string        `json:"paper"`
	Ours      string        `json:"ours"`
	Tolerance string        `json:"tolerance"`
	Verdict   paper.Verdict `json:"verdict"`
	Recorded  paper.Verdict `json:"recorded"`
	Worse     bool          `json:"worse"`
	Failed    bool          `json:"failed"`
	Reason    string        `json:"reason,omitempty"`
	LeftOut   []string      `json:"left_out,omitempty"`
	Measured  bool          `json:"measured"`
	Command   string        `json:"command,omitempty"`
	Seconds   float64       `json:"seconds"`
	Dir       string        `json:"dir"` // directory of its data
}

// report prints the verdicts, and what is left out or worse.
func report(e *cli.Env, out string, about reproduce.About, results []*reproduce.Result) error {
	var worse []string
	t := cli.Table{Left: true}
	t.Row("id", "where", "title", "verdict", "recorded", "time")
	for _, r := range results {
		if r.Worse {
			worse = append(worse, r.ID)
		}
		t.Row(r.ID, r.Where, r.Title, r.Verdict, r.Recorded, r.Took.Round(100*time.Millisecond))
		if !e.JSON {
			continue
		}
		if err := e.PrintJSON(line{
			schema, r.ID, r.Where, r.Title, r.Paper, r.Ours, r.Tolerance, r.Verdict, r.Recorded, r.Worse, r.Failed,
			r.Reason, r.LeftOut, r.Measured, r.Command, r.Took.Seconds(), filepath.Join(out, r.ID),
		}); err != nil {
			return err
		}
	}
	if !e.JSON {
		if err := e.PrintTable(&t); err != nil {
			return err
		}
	}
	for _, what := range about.LeftOut {
		e.Message("left out: %s", what)
	}
	for _, r := range results {
		if r.Failed {
			e.Message("%s: %s", r.ID, r.Reason)
		}
		for _, what := range r.LeftOut {
			e.Message("%s left out: %s", r.ID, what)
		}
	}
	e.Message("the page is %s", filepath.Join(out, "index.html"))
	if worse != nil {
		e.Message("worse than recorded in the registry: %s", strings.Join(worse, ", "))
		return cli.StatusError(cli.StatusFailed)
	}
	return nil
}
