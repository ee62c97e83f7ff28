package p2p

import "github.com/allcast/allcast/internal/protocol"

// Call describes what was called, for people.
func (p *Plan) Call() protocol.CallInfo {
	return protocol.CallInfo{
		Kind: p.Kind, Algo: protocol.AlgoOf(p.Algo), Type: uint16(p.Type), Root: uint32(p.Root), Bytes: uint64(p.Bytes),
	}
}

// Call describes what was called, for people.
func (r *Reduction) Call() protocol.CallInfo {
	var sum uint64
	for _, n := range r.blocks() {
		sum += uint64(n)
	}
	return protocol.CallInfo{Kind: r.Kind, Algo: protocol.AlgoOf("inc"), Type: uint16(r.Type), Bytes: sum}
}
