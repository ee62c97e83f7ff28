package main

// A mutant is a plausible mistake in the code that receives.
type mutant struct {
	name  string
	file  string
	old   string // text that the file has exactly once,
	wrong string // and its replacement
}

var mutants = []mutant{
	{
		name: "offer claimed chunks", file: "internal/mcast/fetch.go",
		old:   "if stop := a.NextMissing(at, end); stop > at {",
		wrong: "if stop := a.NextFree(at, end); stop > at {",
	},
	{
		name: "place a duplicate", file: "internal/mcast/placement.go",
		old:   "case p.Free(psn):",
		wrong: "case p.Free(psn) || p.InPlace(psn):",
	},
	{
		name: "place a claimed chunk", file: "internal/mcast/placement.go",
		old:   "case p.Free(psn):",
		wrong: "case !p.InPlace(psn):",
	},
	{
		name: "claim chunks in place", file: "internal/place/map.go",
		old:   "got := mask &^ old",
		wrong: "got := mask",
	},
	{
		name: "expect chunks that are not free", file: "internal/mcast/intake.go",
		old:   "if psn >= p.Len() || !p.Free(psn) {",
		wrong: "if psn >= p.Len() {",
	},
	{
		name: "trust the guess", file: "internal/mcast/intake.go",
		old:   "return p != nil && token == p.token && imm == in.layout.Imm(p.Seq, psn) && p.Free(psn)",
		wrong: "return p != nil && token == p.token && p.Free(psn)",
	},
	{
		name: "trust the guess for any operation", file: "internal/mcast/intake.go",
		old:   "return p != nil && token == p.token && imm == in.layout.Imm(p.Seq, psn) && p.Free(psn)",
		wrong: "_, got := in.layout.Split(imm)\n\treturn p != nil && got == psn && p.Free(psn)",
	},
	{
		name: "keep a closed operation", file: "internal/mcast/intake.go",
		old:   "if in.last == p {\n",
		wrong: "if in.last == nil {\n",
	},
	{
		name: "ask only the last operation", file: "internal/mcast/intake.go",
		old:   "if p == nil || p.token != token {",
		wrong: "if p == nil {",
	},
	{
		name: "ignore the last chunk", file: "internal/mcast/placement.go",
		old:   "if psn >= p.Len() {",
		wrong: "if psn+1 >= p.Len() {",
	},
	{
		name: "merge runs with a gap", file: "internal/mcast/intake.go",
		old:   "r.Runs[k].PSN+r.Runs[k].N == q.PSN {",
		wrong: "r.Runs[k].PSN+r.Runs[k].N <= q.PSN {",
	},
	{
		name: "merge runs of other operations", file: "internal/mcast/intake.go",
		old:   "k >= 0 && r.Runs[k].Placement == p && r.Runs[k].PSN",
		wrong: "k >= 0 && r.Runs[k].PSN",
	},
	{
		name: "forget reads beyond the window", file: "internal/mcast/fetch.go",
		old:   "return o.settle(now, o.pumpReads(out))",
		wrong: "return o.settle(now, out)",
	},
	{
		name: "leak the place of a read that won nothing", file: "internal/mcast/fetch.go",
		old:   "\to.reads--\n",
		wrong: "\tif len(ranges) > 0 {\n\t\to.reads--\n\t}\n",
	},
	{
		name: "forget what the neighbour waits for", file: "internal/mcast/collective.go",
		old:   "out = o.offerPlaced(sub, []wire.Range{q}, out)",
		wrong: "o.offerPlaced(sub, []wire.Range{q}, nil)",
	},
	{
		name: "count a repaired chunk as asked for", file: "internal/mcast/fetch.go",
		old:   "o.asked -= a.asked.ClearRange(q.PSN, q.N)",
		wrong: "a.asked.ClearRange(q.PSN, q.N)",
	},
	{
		name: "ask for what was not sent", file: "internal/mcast/fetch.go",
		old:   "for at, end := o.g.base[sub][i], o.g.base[sub][i]+n; ; {",
		wrong: "for at, end := o.g.base[sub][i], o.g.base[sub][i+1]; n >= 0; {",
	},
	{
		name: "add a piece before its turn", file: "internal/p2p/inbox.go",
		old:   "if r.Reduce && i > b.prefix {",
		wrong: "if r.Reduce && i > b.prefix+1 {",
	},
}
