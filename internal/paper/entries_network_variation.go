package paper

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/allcast/allcast/internal/background"
	"github.com/allcast/allcast/internal/figure"
)

// farBelow is the largest share of another algorithm's deviation that counts as far below it.
const farBelow = 0.5

// lessThan compares the variation of multicast with those of the paper's point-to-point algorithms, for one cause. Both
// deviation and range must be far below, in time and as shares of the mean.
func lessThan(all []spread, cause string, mcast contender) (holds bool, text string) {
	i := slices.IndexFunc(all, func(s spread) bool { return s.Cause == cause && s.Op == mcast.Op && s.Name == mcast.Name })
	if i < 0 {
		return false, ""
	}
	m := all[i]
	holds = true
	list := []string{fmt.Sprintf("%s %.1f us (%.2f %%)", m.Name, m.Deviation, m.Relative())}
	for _, s := range all {
		if s.Cause != cause || s.Op != m.Op || s.multicast() {
			continue
		}
		list = append(list, fmt.Sprintf("%s %.1f us (%.2f %%)", s.Name, s.Deviation, s.Relative()))
		holds = holds && m.Deviation <= farBelow*s.Deviation && m.Range <= farBelow*s.Range &&
			m.Relative() <= farBelow*s.Relative()
	}
	return holds, m.Op + ": " + strings.Join(list, ", ")
}

// holdsFor lists the causes for which multicast varies far less.
func holdsFor(all []spread, mcast contender) (yes, no []string) {
	for _, c := range causes {
		if holds, text := lessThan(all, c.Name, mcast); holds {
			yes = append(yes, c.Name)
		} else if text != "" {
			no = append(no, c.Name)
		}
	}
	return yes, no
}

// runToRun is the entry of claim C9.
func runToRun(ctx context.Context, e *Env) (*Outcome, error) {
	all, err := variations(ctx, e)
	if err != nil {
		return nil, err
	}
	o := &Outcome{
		Verdict: Hit,
		Command: fmt.Sprintf("allcast sim allgather --topology %s --algo mcast,ring --bytes 64K --rate 56gbit "+
			"--placement random:1 --routing hash:1 --background %v", Testbed, background.Spec{
			Flows: otherFlows, Share: otherShare, Seed: 1,
		}),
		Tables: []Table{variationTable(all)},
	}
	var texts, reasons []string
	for _, c := range contenders {
		if !c.multicast() {
			continue
		}
		holds, text := lessThan(all, allCauses, c)
		if c.cost == 0 && !holds {
			o.Verdict = Miss
		}
		texts = append(texts, text)
		yes, no := holdsFor(all, c)
		reasons = append(reasons, fmt.Sprintf("%s by %s: far below with %s; not with %s.", c.Op, c.Name, list(yes), list(no)))
	}
	o.Ours = fmt.Sprintf("Standard deviation over %d seeds on a %s (%s). %s.",
		all[0].Seeds, allCauses, aboutCause(allCauses), strings.Join(texts, "; "))
	o.Reason = fmt.Sprintf("The verdict is that of ideal receivers. Receivers that need %v per chunk, as the factors of "+
		"C8 suggest, hide the variation of the network. %s", slowReceiver, strings.Join(reasons, " "))
	if e.Quick {
		o.Reason += " Quick: 5 seeds instead of 10, half the sizes, and only the sum of the network's causes."
	}
	o.Figures = []NamedFigure{
		{"c9-broadcast", variationFigure(all, "broadcast")},
		{"c9-allgather", variationFigure(all, "allgather")},
	}
	return o, nil
}

func aboutCause(name string) string {
	for _, c := range causes {
		if c.Name == name {
			return c.About
		}
	}
	return ""
}

func variationTable(all []spread) Table {
	t := Table{
		Name: "c9-variation", Title: "variation of the time over seeds, on the testbed",
		Columns: []string{
			"cause", "operation", "algorithm", "bytes", "seeds", "mean, us", "max - min, us", "standard deviation, us",
			"standard deviation, %",
		},
	}
	for _, s := range all {
		t.Rows = append(t.Rows,
			[]any{s.Cause, s.Op, s.Name, s.Bytes, s.Seeds, s.Mean, s.Range, s.Deviation, s.Relative()})
	}
	return t
}

// variationFigure draws the deviations of an operation by cause.
func variationFigure(all []spread, op string) figure.Figure {
	f := figure.Figure{
		Title: "Variation of " + op + " over seeds",
		X:     figure.Axis{Label: "cause"},
		Y:     figure.Axis{Label: "standard deviation, us"},
	}
	places, lines := make(map[string]int), make(map[string]int)
	for _, s := range all {
		if s.Op != op {
			continue
		}
		x, found := places[s.Cause]
		if !found {
			x = len(f.X.Names)
			places[s.Cause] = x
			f.X.Names = append(f.X.Names, s.Cause)
		}
		i, found := lines[s.Name]
		if !found {
			i = len(f.Series)
			lines[s.Name] = i
			f.Series = append(f.Series, figure.Series{Name: s.Name, Style: figure.Bars})
		}
		f.Series[i].Data = append(f.Series[i].Data, figure.Point{X: float64(x), Y: s.Deviation})
	}
	return f
}
