//go:build !verbs

package world

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/settings"
)

// verbsPort stands in for the type of builds with verbs.
type verbsPort struct{}

var errNoVerbs = errors.New("the fabric verbs: " + settings.BuildVerbs)

func openVerbs(*joining) (*verbsPort, error) { return nil, errNoVerbs }

func (*verbsPort) maxChunk(bool) int { return 0 }

func (*verbsPort) card() json.RawMessage { return nil }

func (*verbsPort) undo() {}

func (*verbsPort) reliable(fabric.Handler, *slog.Logger) fabric.Reliable { return fabric.Reliable{} }

func (*verbsPort) multicast(*joining, []netip.AddrPort, int) (fabric.Multicast, error) {
	return nil, errNoVerbs
}

func (j *joining) connectVerbs(context.Context, []card) error { return errNoVerbs }
