//go:build verbs

package world

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/ip"
	"github.com/allcast/allcast/internal/fabric/verbs"
	"github.com/allcast/allcast/internal/rendezvous"
)

// devicePort implements verbsPort.
type devicePort struct {
	dev *verbs.Device
	rc  *verbs.RC // nil once the engine owns it
}

// openVerbs opens the device that the settings name, or the device of the interface towards rank 0, or
// the first that works.
func openVerbs(j *joining) (verbsPort, error) {
	name := j.Device
	if names := strings.Split(name, ","); len(names) > 1 {
		name = strings.TrimSpace(names[j.Rank%len(names)])
	}
	d, err := verbs.Open(name, j.ifi.Index, j.Logger)
	if err != nil {
		return nil, err
	}
	rc, err := verbs.NewRC(d, j.Rank, j.Size)
	if err != nil {
		d.Close()
		return nil, err
	}
	j.where = d.String()
	return &devicePort{d, rc}, nil
}

func (v *devicePort) undo() {
	if v.rc != nil {
		_ = v.rc.Close()
		v.dev.Close()
	}
}

func (v *devicePort) describe(sums bool) (int, json.RawMessage) {
	b, err := json.Marshal(v.rc.Card())
	if err != nil {
		panic(err) // a struct of numbers always encodes
	}
	return v.dev.MaxChunk(sums), b
}

func (v *devicePort) connect(ctx context.Context, session *rendezvous.Session, cards []card) error {
	all := make([]*verbs.Card, len(cards))
	for r, c := range cards {
		if err := json.Unmarshal(c.Verbs, &all[r]); err != nil {
			return fmt.Errorf("rank %d sent a card that does not decode: %w", r, err)
		}
	}
	var mine card
	if err := v.rc.Connect(all); err != nil {
		mine.Error = err.Error()
	}
	cards, err := exchange(ctx, session, mine)
	if err != nil {
		return err
	}
	for r, c := range cards {
		if c.Error != "" {
			return fmt.Errorf("rank %d cannot take part: %s", r, c.Error)
		}
	}
	return nil
}

func (v *devicePort) multicast(j *joining, groups []netip.AddrPort, chunk int) (fabric.Multicast, error) {
	cfg := verbs.McastConfig{
		Chunk: chunk, TTL: j.TTL, DSCP: j.DSCP, ReceiveBuffer: j.ReceiveBuffer, Sums: j.sum() > 0,
		QKey: uint32(j.number("qkey")) & (1<<31 - 1), // the top bit marks privileged keys
	}
	if j.Groups == nil { // otherwise the network forwards only those
		cfg.Derive = func(comm string, sub int) netip.Addr {
			return ip.GroupsFor(j.number("groups of "+comm), len(groups), false)[sub].Addr()
		}
	}
	for _, g := range groups {
		cfg.Groups = append(cfg.Groups, g.Addr())
	}
	m, err := verbs.OpenMulticast(v.dev, cfg)
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (v *devicePort) reliable(h fabric.Handler, log *slog.Logger) fabric.Reliable {
	v.rc.Start(h, log)
	rc := v.rc
	v.rc = nil
	v.dev.Close() // the engine holds the last reference now
	return rc.Reliable()
}
