package sim

import (
	"cmp"
	"slices"

	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/wire"
)

// An operation holds the properties of a collective.
type operation struct {
	kind     wire.CallKind
	first    string // default algorithm
	owners   blockOwners
	inPlace  bool // whether there is one buffer only
	reduces  bool // whether contributions are added up
	inc      bool // whether the network can add them up
	scatters bool // whether a rank's result is only its own block
	toRoot   bool // whether only the root has a result
}

// blockOwners says which ranks have a block of the buffer that all ranks have. An exchange has no such
// buffer.
type blockOwners uint8

const (
	noRank blockOwners = iota
	rootOnly
	everyRank
)

var operations = map[string]operation{
	"broadcast": {kind: wire.Broadcast, first: "mcast", owners: rootOnly, inPlace: true},
	"allgather": {kind: wire.Allgather, first: "mcast", owners: everyRank},
	"reduce-scatter": {
		kind: wire.ReduceScatter, first: "ring", owners: everyRank, reduces: true, inc: true, scatters: true,
	},
	"allreduce": {kind: wire.Allreduce, first: "ring", owners: rootOnly, reduces: true, inc: true},
	"barrier":   {kind: wire.Barrier, first: "dissemination"},
	"reduce":    {kind: wire.Reduce, first: "binomial", owners: rootOnly, reduces: true, toRoot: true},
	"gather":    {kind: wire.Gather, first: "binomial"},
	"gatherv":   {kind: wire.Gatherv, first: "linear"},
	"scatter":   {kind: wire.Scatter, first: "binomial"},
	"scatterv":  {kind: wire.Scatterv, first: "linear"},
	"alltoall":  {kind: wire.Alltoall, first: "pairwise"},
	"alltoallv": {kind: wire.Alltoallv, first: "pairwise"},
	"sendrecv":  {kind: wire.Send, first: "direct"},
}

// operationOf returns the operation of a kind.
func operationOf(kind wire.CallKind) operation {
	if kind == wire.Send {
		return operations["sendrecv"]
	}
	return operations[kind.String()]
}

// bothAtOnce is the pair of collectives of an FSDP step (Appendix B).
const bothAtOnce = "allgather+reduce-scatter"

// Algorithms lists the algorithms by operation. The first is the default.
var Algorithms = listAlgorithms()

func listAlgorithms() map[string][]string {
	all := map[string][]string{bothAtOnce: {"mcast+inc", "ring+ring", "mcast+ring", "ring+inc"}}
	for name, op := range operations {
		plans := p2p.Algorithms(op.kind)
		slices.SortFunc(plans, func(a, b string) int { return cmp.Compare(wire.AlgorithmOf(a), wire.AlgorithmOf(b)) })
		plans = slices.DeleteFunc(plans, func(algo string) bool { return algo == op.first })
		all[name] = append([]string{op.first}, plans...)
		if op.inc {
			all[name] = append(all[name], "inc")
		}
	}
	return all
}

// blockSizes returns the size of each rank's block.
func (op operation) blockSizes(cfg *Config) []int64 {
	if cfg.Counts != nil {
		return cfg.Counts
	}
	counts := make([]int64, cfg.Topology.Hosts)
	for i := range counts {
		if op.owners == everyRank || op.owners == rootOnly && i == cfg.Root {
			counts[i] = cfg.Bytes
		}
	}
	return counts
}
