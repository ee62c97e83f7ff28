package engine

import (
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/wire"
)

// watched tells a test of what is no phase of its own: passing the turn on, and data of
// point-to-point algorithms.
func (e *Engine) watched(a *node.Action) {
	switch {
	case a.Kind == node.Send && (a.Msg.Kind == wire.MsgActivate || a.Msg.Kind == wire.MsgChainSent):
		e.cfg.Watch(a.Msg.Comm, a.Msg.Seq, "activation")
	case a.Kind == node.Put:
		e.cfg.Watch(a.Comm, a.Seq, "put")
	}
}
