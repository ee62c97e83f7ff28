package paper

import (
	"slices"

	"github.com/allcast/allcast/internal/figure"
)

// Subject is what the registry says about an entry.
type Subject struct {
	ID        string
	Where     string
	Title     string
	Paper     string
	Points    []Points // of a claim: those of its figures
	Tolerance string
	Recorded  Verdict
	Related   []string // the claims of a figure, or the figures of a claim
}

// subjects returns all claims and figures in the paper's order: each figure, then its claims that no earlier figure
// has.
func (r registry) subjects() []Subject {
	var all []Subject
	seen := make(map[string]bool)
	for _, f := range r.Figures {
		all = append(all, Subject{f.ID, f.Where, f.Title, f.Paper, f.Points, f.Tolerance, f.Verdict, f.Claims})
		for _, c := range r.Claims {
			if slices.Contains(f.Claims, c.ID) && !seen[c.ID] {
				seen[c.ID] = true
				all = append(all, r.subject(c))
			}
		}
	}
	return all
}

func (r registry) subject(c claim) Subject {
	s := Subject{ID: c.ID, Where: c.Where, Title: c.Title, Paper: c.Paper, Tolerance: c.Tolerance, Recorded: c.Verdict}
	for _, f := range r.Figures {
		if slices.Contains(f.Claims, c.ID) {
			s.Related = append(s.Related, f.ID)
			s.Points = append(s.Points, f.Points...)
		}
	}
	return s
}

// mustRegistry is the registry, which is part of the program. A test decodes it.
func mustRegistry() registry {
	r, err := loadRegistry()
	if err != nil {
		panic(err)
	}
	return r
}

// Subjects returns all claims and figures of the registry in the paper's order.
func Subjects() []Subject { return mustRegistry().subjects() }

// inPaperOrder sorts entries as the registry does.
func inPaperOrder(lists ...[]Entry) []Entry {
	all := slices.Concat(lists...)
	position := make(map[string]int)
	for i, s := range Subjects() {
		position[s.ID] = i
	}
	slices.SortStableFunc(all, func(a, b Entry) int { return position[a.ID] - position[b.ID] })
	return all
}

// paperPoints returns a series of the paper's points for a plot, by the ID of a figure and the name of its points.
func paperPoints(id, name string, style figure.Style) figure.Series { //nolint:unparam // bars are possible too
	for _, f := range mustRegistry().Figures {
		for _, p := range f.Points {
			if f.ID == id && p.Name == name {
				return figure.Series{Name: name, Style: style, Paper: true, Data: slices.Clone(p.Data)}
			}
		}
	}
	panic("internal/paper/claims.json: " + id + " has no points called " + name)
}
