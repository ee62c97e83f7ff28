package observe

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/allcast/allcast/internal/wire"
)

// A View is a process of a job as inspect found it.
type View struct {
	Socket
	State *State // nil without an answer
	Err   error  // reason why there is no answer
}

// Answers reports whether the process described its operations.
func (v *View) Answers() bool { return v.State != nil && v.State.Answers }

// A Diagnosis describes the state of a job in one line.
type Diagnosis struct {
	Job  string `json:"job"`
	Rank int    `json:"rank"` // the rank that others wait for, or -1
	Text string `json:"diagnosis"`
}

// end is the result of a search for the rank that delays an operation.
type end struct {
	rank int
	how  string
	op   Op
	comm string
	from []int // ranks at which the searches started
}

// Diagnose finds the rank that most other ranks of a job wait for, according to their states.
func Diagnose(job string, views []View) Diagnosis {
	d := diagnosing{byRank: map[int]*View{}, ends: map[int]*end{}}
	for i := range views {
		d.byRank[views[i].Rank] = &views[i]
	}
	for _, r := range slices.Sorted(maps.Keys(d.byRank)) {
		if v := d.byRank[r]; v.Answers() {
			d.answering++
			d.search(v)
		}
	}
	if e := d.worst(); e != nil {
		return Diagnosis{job, e.rank, d.describe(e)}
	}
	return Diagnosis{job, -1, d.quiet(views)}
}

type diagnosing struct {
	byRank    map[int]*View
	ends      map[int]*end
	answering int
}

// search follows the oldest operation of each of a process's communicators.
func (d *diagnosing) search(v *View) {
	for i := range v.State.Comms {
		c := &v.State.Comms[i]
		if len(c.Ops) == 0 {
			continue
		}
		op := c.Ops[0]
		rank, how := d.follow(v.Rank, c.ID, op)
		e := d.ends[rank]
		if e == nil {
			e = &end{rank: rank, how: how, op: op, comm: c.Name}
			d.ends[rank] = e
		}
		if rank != v.Rank && !slices.Contains(e.from, v.Rank) {
			e.from = append(e.from, v.Rank)
		}
	}
}

// follow goes from a waiting rank to the rank that it waits for, until one does not wait.
func (d *diagnosing) follow(rank int, comm uint32, op Op) (last int, how string) {
	seen := map[int]bool{}
	for {
		v := d.byRank[rank]
		switch {
		case seen[rank]:
			return rank, "it and others wait for each other"
		case v == nil:
			return rank, "it is not a process that we can ask here"
		case v.State == nil:
			return rank, "it does not answer"
		case !v.Answers():
			return rank, "its control side is stuck"
		}
		seen[rank] = true
		i := slices.IndexFunc(v.State.Comms, func(c Comm) bool { return c.ID == comm })
		if i < 0 {
			return rank, "it does not have this communicator"
		}
		c := &v.State.Comms[i]
		at := slices.IndexFunc(c.Ops, func(o Op) bool { return o == op || o.Seq == op.Seq && !op.message() })
		if at < 0 && op.message() && len(c.Ops) > 0 {
			at, op = 0, c.Ops[0] // the rank waits in its oldest operation, and may send or receive after that
		}
		switch {
		case at < 0 && op.message():
			return rank, "it has no " + op.counterpart() + " for this message under way"
		case op.Op == wire.Recv.String() && op.WaitsOn == rank:
			return rank, "it waits for a message from any rank"
		case at < 0 && c.Calls <= op.Seq:
			return rank, "it has not made this call"
		case at < 0:
			return rank, "it has ended this call by now: the job is moving"
		case c.Ops[at].WaitsOn == rank:
			return rank, "it is at work in the " + c.Ops[at].Phase + " phase"
		}
		rank = c.Ops[at].WaitsOn
	}
}

// message reports whether the operation is a Send or a Recv. Their numbers mean nothing to other ranks.
func (o *Op) message() bool { return o.Op == wire.Send.String() || o.Op == wire.Recv.String() }

// counterpart names the operation of the other rank that a message needs.
func (o *Op) counterpart() string {
	if o.Op == wire.Send.String() {
		return wire.Recv.String()
	}
	return wire.Send.String()
}

// worst is the rank that most ranks wait for, or otherwise one that is working.
func (d *diagnosing) worst() (worst *end) {
	for _, r := range slices.Sorted(maps.Keys(d.ends)) {
		if e := d.ends[r]; worst == nil || len(e.from) > len(worst.from) {
			worst = e
		}
	}
	return worst
}

func (d *diagnosing) describe(e *end) string {
	var b strings.Builder
	others := d.answering
	if v := d.byRank[e.rank]; v != nil && v.Answers() {
		others--
	}
	switch {
	case len(e.from) == 0:
		_, _ = fmt.Fprintf(&b, "rank %d waits for no other rank", e.rank)
	case len(e.from) == others && others > 1:
		_, _ = fmt.Fprintf(&b, "all others wait for rank %d", e.rank)
	case len(e.from) == 1:
		_, _ = fmt.Fprintf(&b, "rank %d waits for rank %d", e.from[0], e.rank)
	default:
		_, _ = fmt.Fprintf(&b, "ranks %s wait for rank %d", list(e.from), e.rank)
	}
	name := e.op.Op
	if !e.op.message() {
		name += fmt.Sprintf(" %d", e.op.Seq)
	}
	_, _ = fmt.Fprintf(&b, "; in %s of %s for %s; %s", name, e.comm, Short(e.op.For), e.how)
	if silent, heard := d.silence(e.rank); heard {
		b.WriteString("; silent for " + Short(silent))
	}
	return b.String()
}

// list names the first ranks, and counts the others.
func list(ranks []int) string {
	const limit = 4
	text := strings.Trim(fmt.Sprint(ranks[:min(limit, len(ranks))]), "[]")
	text = strings.ReplaceAll(text, " ", ", ")
	if more := len(ranks) - limit; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// silence is the time since any rank last heard from a rank.
func (d *diagnosing) silence(rank int) (least float64, heard bool) {
	for _, v := range d.byRank {
		if !v.Answers() {
			continue
		}
		for _, p := range v.State.Peers {
			if p.Rank == rank && p.Heard && (!heard || p.Silent < least) {
				least, heard = p.Silent, true
			}
		}
	}
	return least, heard
}

// quiet is the diagnosis when no rank is in an operation.
func (d *diagnosing) quiet(views []View) string {
	var silent []string
	for i := range views {
		if !views[i].Answers() {
			silent = append(silent, strconv.Itoa(views[i].Rank))
			continue
		}
		for _, c := range views[i].State.Comms {
			if c.Broken != "" {
				return fmt.Sprintf("no operation is under way; communicator %s is broken: %s", c.Name, c.Broken)
			}
		}
	}
	text := "no operation is under way"
	if d.answering == 0 {
		text = "nobody answers"
	} else if len(silent) > 0 {
		text += "; no answer from rank " + strings.Join(silent, ", ")
	}
	return text
}

// Short formats seconds for users.
func Short(s float64) string {
	switch {
	case s < 1e-3:
		return fmt.Sprintf("%.0fus", s*1e6)
	case s < 1:
		return fmt.Sprintf("%.1fms", s*1e3)
	}
	return fmt.Sprintf("%.1fs", s)
}
