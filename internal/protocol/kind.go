package protocol

import "fmt"

// Kind is what a collective does.
type Kind uint8

// Collectives. The first two ride on multicast; all of them have point-to-point
// plans (package p2p).
const (
	Broadcast Kind = 1 + iota
	Allgather
	ReduceScatter
	Allreduce
	BarrierCall
)

var kindNames = [...]string{Broadcast: "broadcast", Allgather: "allgather", ReduceScatter: "reduce-scatter", Allreduce: "allreduce", BarrierCall: "barrier"}

func (k Kind) String() string {
	if k > 0 && int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// MaxSubgroups bounds S, and with it what a message can make us allocate.
const MaxSubgroups = 1024
