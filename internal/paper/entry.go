package paper

import (
	"context"
	"time"

	"github.com/allcast/allcast/internal/figure"
)

// Entry reproduces one claim, figure or table of the paper. Its texts and its recorded verdict come from the
// registry.
type Entry struct {
	ID    string        // as in the registry: "C9", "fig11", "table1", "appA"
	Quick time.Duration // about how long it takes with Env.Quick, on 2 cores
	Full  time.Duration // about how long it takes otherwise
	// Needs says what the machine must have; empty if nothing. An entry that does not find it reports CannotShow
	// for that part, with the reason.
	Needs string
	// Alone says that the entry measures real time, so that no other entry may run meanwhile. Entries with Needs also
	// run alone.
	Alone bool
	// Run computes the entry. An error means that it could not be computed at all, not that the claim fails.
	Run func(context.Context, *Env) (*Outcome, error)
}

// Entries returns all entries in the paper's order: each figure, then its claims.
func Entries() []Entry {
	return inPaperOrder(modelEntries, networkEntries, acceleratorEntries)
}

// Outcome is what an entry found.
type Outcome struct {
	Verdict Verdict `json:"verdict"`
	// Reason says why it is no hit, or what limits the claim. It is empty if there is nothing to say.
	Reason  string `json:"reason,omitempty"`
	Ours    string `json:"ours"`              // one sentence with our numbers
	Command string `json:"command,omitempty"` // what a reader can run to see the same numbers
	// LeftOut lists parts that did not run and why, such as "lab: needs root". If an outcome with such parts is
	// CannotShow, it does not count as worse than the recorded verdict.
	LeftOut []string      `json:"left_out,omitempty"`
	Tables  []Table       `json:"tables,omitempty"`
	Figures []NamedFigure `json:"figures,omitempty"`
	// Measured says whether some of the data comes from real clocks. Other data is the same in each run with the same
	// seed.
	Measured bool `json:"measured,omitempty"`
}

// Table is data of an entry. A CSV file holds it.
type Table struct {
	Name    string   `json:"name"` // of the file, without extension: lower-case letters, digits and "-"
	Title   string   `json:"title"`
	Columns []string `json:"columns"` // with units
	Rows    [][]any  `json:"rows"`    // strings, integers and floats
}

// NamedFigure is a plot of an entry.
type NamedFigure struct {
	Name string `json:"name"` // of the file, without extension, as that of a table
	figure.Figure
}
