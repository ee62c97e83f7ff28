//go:build !verbs

package world

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"

	"github.com/allcast/allcast/internal/fabric"
)

// HasVerbs reports whether this program was built with the fabric Verbs.
const HasVerbs = false

// verbsPort takes the place of the real one.
type verbsPort struct{}

var errNoVerbs = errors.New("the fabric verbs: " + BuildVerbs)

func openVerbs(*joining) (*verbsPort, error) { return nil, errNoVerbs }

func (*verbsPort) maxChunk(bool) int { return 0 }

func (*verbsPort) card() json.RawMessage { return nil }

func (*verbsPort) undo() {}

func (*verbsPort) reliable(fabric.Handler, *slog.Logger) fabric.Reliable { return fabric.Reliable{} }

func (*verbsPort) multicast(*joining, []netip.AddrPort, int) (fabric.Multicast, error) {
	return nil, errNoVerbs
}

func (j *joining) connectVerbs(context.Context, []card) error { return errNoVerbs }
