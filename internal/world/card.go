package world

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/netip"

	"github.com/allcast/allcast/internal/fabric/ip"
	"github.com/allcast/allcast/internal/offload/napi"
	"github.com/allcast/allcast/internal/rendezvous"
)

// card is what a rank tells the others about itself. Everybody gets everybody's, so its
// names are short.
type card struct {
	Addr      string  `json:"a,omitempty"` // where it listens
	Fabric    string  `json:"f,omitempty"`
	Chunk     int     `json:"c,omitempty"` // largest that fits its interface
	Subgroups int     `json:"s,omitempty"`
	V6        bool    `json:"v,omitempty"`
	Error     string  `json:"e,omitempty"` // why it cannot go on
	NoMcast   string  `json:"m,omitempty"` // why it has no multicast
	Asked     int     `json:"k,omitempty"` // chunk that was asked for
	Groups    uint64  `json:"g,omitempty"` // a hash of those that were asked for
	Rack      string  `json:"r,omitempty"`
	Rate      float64 `json:"b,omitempty"`
	Calibrate bool    `json:"q,omitempty"`
	Integrity bool    `json:"i,omitempty"`

	Verbs json.RawMessage `json:"d,omitempty"` // how its queue pairs are reached
}

// open opens what ranks reach us by, and says what they must know of it, or what went wrong:
// a rank that cannot go on tells the others.
func (j *joining) open() card {
	mine := card{
		Fabric: j.Fabric, Subgroups: max(1, j.Subgroups), Asked: j.Chunk, Groups: groupsHash(j.Groups), NoMcast: j.NoMulticast,
		Rack: j.Rack, Rate: j.Rate, Integrity: j.Integrity, Calibrate: j.Calibrate,
	}
	err := j.place()
	switch {
	case err != nil:
	case j.Fabric == Verbs:
		j.verbs, err = openVerbs(j)
	default:
		j.where = j.ifi.Name
		j.ln, err = ip.Listen(j.local)
	}
	if err == nil && len(j.RecvCores) > 0 {
		err = j.dedicate()
	}
	if err == nil {
		err = j.offload()
	}
	switch {
	case err != nil:
		mine.Error = err.Error()
	case j.verbs != nil:
		mine.Chunk, mine.Verbs = j.verbs.maxChunk(j.sum() > 0), j.verbs.card()
	default:
		mine.Addr, mine.V6 = j.ln.Addr().String(), j.local.Is6() && !j.local.Is4In6()
		mine.Chunk = max(0, ip.MaxPayload(j.ifi.MTU, mine.V6)-j.tag()-j.sum())
	}
	return mine
}

// dedicate makes RecvCores take the packets of our interface.
func (j *joining) dedicate() error {
	undo, err := napi.Dedicate(j.ifi, j.RecvCores)
	if err != nil {
		return err
	}
	j.undoNIC = func() {
		if err := undo(); err != nil {
			j.Log.Warn("the interface keeps the settings of receive cores", "err", err)
		}
	}
	return nil
}

// exchange gives everybody a card and gets everybody's.
func exchange[T any](ctx context.Context, s *rendezvous.Session, mine T) ([]T, error) {
	blob, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	blobs, err := s.Exchange(ctx, blob)
	if err != nil {
		return nil, err
	}
	all := make([]T, len(blobs))
	for r, b := range blobs {
		if err := json.Unmarshal(b, &all[r]); err != nil {
			return nil, fmt.Errorf("rank %d sent a card that does not decode: %w", r, err)
		}
	}
	return all, nil
}

// agree finds what suits everybody; all ranks come to the same result. A chunk that was asked
// for may take several packets, up to long bytes, of which each has packet of them.
func agree(cards []card, long int) (addrs []string, chunk, packet int, noMcast string, err error) {
	chunk = cards[0].Chunk
	for r, c := range cards {
		switch {
		case c.Error != "":
			return nil, 0, 0, "", fmt.Errorf("rank %d cannot take part: %s", r, c.Error)
		case c.Fabric != cards[0].Fabric:
			return nil, 0, 0, "", fmt.Errorf("rank %d uses the fabric %s, rank 0 %s: use the same Options.Fabric or ALLCAST_FABRIC on all ranks", r, c.Fabric, cards[0].Fabric)
		case c.V6 != cards[0].V6:
			return nil, 0, 0, "", fmt.Errorf("rank %d uses another IP version than rank 0: set MASTER_ADDR or the interface so that all use the same", r)
		case c.Subgroups != cards[0].Subgroups || c.Asked != cards[0].Asked:
			return nil, 0, 0, "", fmt.Errorf("rank %d was started with other options than rank 0 (%d and %d subgroups, chunks of %d and %d bytes): use the same on all ranks",
				r, c.Subgroups, cards[0].Subgroups, c.Asked, cards[0].Asked)
		case c.Rate != cards[0].Rate:
			return nil, 0, 0, "", fmt.Errorf("rank %d was told another rate of the network than rank 0 (%g and %g bit/s): use the same on all ranks", r, c.Rate, cards[0].Rate)
		case c.Integrity != cards[0].Integrity:
			return nil, 0, 0, "", fmt.Errorf("rank %d was started %s integrity checks, rank 0 %s: use the same Options.Integrity or ALLCAST_INTEGRITY on all ranks",
				r, with(c.Integrity), with(cards[0].Integrity))
		case c.Groups != cards[0].Groups:
			return nil, 0, 0, "", fmt.Errorf("rank %d was given other multicast groups than rank 0: use the same ALLCAST_GROUPS on all ranks", r)
		case c.NoMcast != "" && noMcast == "":
			noMcast = c.NoMcast
		}
		chunk = min(chunk, c.Chunk)
		addrs = append(addrs, c.Addr)
	}
	packet = chunk
	long = max(long, chunk)
	if a := cards[0].Asked; a > long && len(cards) > 1 && noMcast == "" {
		return nil, 0, 0, "", fmt.Errorf("a chunk of %d bytes does not fit the network: at most %d do, %d in one packet", a, long, packet)
	} else if a > 0 {
		chunk = a
	}
	return addrs, chunk, packet, noMcast, nil
}

func with(on bool) string {
	if on {
		return "with"
	}
	return "without"
}

// groupsHash tells whether ranks were given the same groups; 0: none were given.
func groupsHash(groups []netip.AddrPort) uint64 {
	if len(groups) == 0 {
		return 0
	}
	h := fnv.New64a()
	for _, g := range groups {
		h.Write([]byte(g.String() + ","))
	}
	return h.Sum64() >> 11 // exact in JSON's numbers
}
