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
	rc, err := verbs.NewRC(d, j.Rank, j.Size, j.Timeout)
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

func (v *devicePort) introduce(ctx context.Context, session *rendezvous.Session, cards []json.RawMessage) error {
	all := make([]*verbs.Card, len(cards))
	for r, c := range cards {
		if err := json.Unmarshal(c, &all[r]); err != nil {
			return fmt.Errorf("rank %d sent a card that does not decode: %w", r, err)
		}
	}
	var mine card
	if err := v.rc.Introduce(all); err != nil {
		mine.Error = err.Error()
	}
	_, err := fold(ctx, session, mine, func(all []card) (struct{}, error) {
		for r, c := range all {
			if c.Error != "" {
				return struct{}{}, fmt.Errorf("rank %d cannot take part: %s", r, c.Error)
			}
		}
		return struct{}{}, nil
	})
	return err
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
