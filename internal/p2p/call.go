package p2p

import "github.com/allcast/allcast/internal/wire"

// Call describes the call for error messages.
func (p *Plan) Call() wire.Call {
	return wire.Call{
		Kind: p.Kind, Algo: wire.AlgorithmOf(p.Algo), Type: uint16(p.Type), Root: uint32(p.Root), Bytes: uint64(p.Bytes),
	}
}
