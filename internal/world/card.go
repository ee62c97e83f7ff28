package world

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"sync"

	"github.com/allcast/allcast/internal/aggregate"
	"github.com/allcast/allcast/internal/fabric/ip"
	"github.com/allcast/allcast/internal/offload/napi"
	"github.com/allcast/allcast/internal/rendezvous"
	"github.com/allcast/allcast/internal/settings"
)

// card is a rank's description of itself for the others. Rank 0 gets all cards, so their JSON names are short.
type card struct {
	Addr      string  `json:"a,omitempty"` // of its listener
	Fabric    string  `json:"f,omitempty"`
	Chunk     int     `json:"c,omitempty"` // largest that fits its interface
	Subgroups int     `json:"s,omitempty"`
	V6        bool    `json:"v,omitempty"`
	Error     string  `json:"e,omitempty"` // reason why the rank cannot go on
	NoMcast   string  `json:"m,omitempty"` // reason why the rank has no multicast
	Room      int     `json:"o,omitempty"` // fabric.Capabilities.Room
	Streams   int     `json:"t,omitempty"` // streams of a subgroup that it can tell apart
	Asked     int     `json:"k,omitempty"` // settings.Chunk
	Groups    uint64  `json:"g,omitempty"` // hash of settings.Groups and settings.CommGroups
	Machine   uint64  `json:"h,omitempty"` // machineID
	Rack      string  `json:"r,omitempty"`
	Rate      float64 `json:"b,omitempty"`
	Calibrate bool    `json:"q,omitempty"`
	Integrity bool    `json:"i,omitempty"`
	Tree      uint64  `json:"n,omitempty"` // treeHash
	Inc       int     `json:"p,omitempty"` // largest payload for aggregators

	Verbs json.RawMessage `json:"d,omitempty"` // its address there
}

// open opens the sockets or the device and describes them. If it fails, the card tells the other ranks
// why.
func (j *joining) open() card {
	mine := card{
		Fabric: j.Fabric, Subgroups: j.Subgroups, Asked: j.Chunk, Groups: groupsHash(j.Groups, j.CommGroups),
		Machine: machineID(), Rack: j.Rack, Rate: j.Rate, Integrity: j.Integrity, Calibrate: !j.NoCalibration,
		Tree: treeHash(j.Tree),
	}
	if j.NoMulticast {
		mine.NoMcast = "it was turned off"
	}
	err := j.place()
	switch {
	case err != nil:
	case j.Fabric == settings.Verbs:
		j.verbs, err = openVerbs(j)
	default:
		j.where = j.ifi.Name
		j.ln, err = ip.Listen(j.local)
	}
	if err == nil && len(j.ReceiveCores) > 0 {
		err = j.dedicate()
	}
	if err == nil {
		err = j.offload()
	}
	switch {
	case err != nil:
		mine.Error = err.Error()
	case j.verbs != nil:
		mine.Chunk, mine.Verbs = j.verbs.describe(j.sum() > 0)
	default:
		mine.Addr, mine.V6 = j.ln.Addr().String(), j.local.Is6() && !j.local.Is4In6()
		mine.Chunk = max(0, ip.MaxPayload(j.ifi.MTU, mine.V6)-j.tag()-j.sum())
		mine.Inc = aggregate.MaxPayload(j.ifi.MTU, mine.V6)
		if j.Chunk > 0 {
			mine.Inc = min(mine.Inc, max(wholeElement, j.Chunk/wholeElement*wholeElement))
		}
	}
	mine.Streams = j.streams()
	return mine
}

// dedicate makes the kernel take the interface's packets on the processors in ReceiveCores.
func (j *joining) dedicate() error {
	undo, err := napi.Dedicate(j.ifi, j.ReceiveCores)
	if err != nil {
		return err
	}
	j.restoreNIC = sync.OnceFunc(func() {
		if err := undo(); err != nil {
			j.Logger.Warn("the interface keeps the settings of its receive cores", "err", err)
		}
	})
	return nil
}

// fold gives rank 0 the card of each rank, and all ranks the result that rank 0 makes of them, or its error. Results
// are short, so that joining costs each rank little per other rank.
func fold[T, R any](ctx context.Context, s *rendezvous.Session, mine T, f func(cards []T) (R, error)) (R, error) {
	type answer struct {
		Result R      `json:"r"`
		Error  string `json:"e,omitempty"`
	}
	var got answer
	blob, err := json.Marshal(mine)
	if err != nil {
		return got.Result, err
	}
	text, err := s.Fold(ctx, blob, func(blobs [][]byte) []byte {
		var a answer
		cards, err := decodeCards[T](blobs)
		if err == nil {
			a.Result, err = f(cards)
		}
		if err != nil {
			a.Error = err.Error()
		}
		text, err := json.Marshal(a)
		if err != nil {
			panic(err) // a struct of numbers and texts always encodes
		}
		return text
	})
	if err == nil {
		if err = json.Unmarshal(text, &got); err != nil {
			err = fmt.Errorf("rank 0 sent a result that does not decode: %w", err)
		} else if got.Error != "" {
			err = errors.New(got.Error)
		}
	}
	return got.Result, err
}

func decodeCards[T any](blobs [][]byte) ([]T, error) {
	all := make([]T, len(blobs))
	for r, b := range blobs {
		if err := json.Unmarshal(b, &all[r]); err != nil {
			return nil, fmt.Errorf("rank %d sent a card that does not decode: %w", r, err)
		}
	}
	return all, nil
}

// terms are the result of all cards, which suits all ranks.
type terms struct {
	Chunk     int               `json:"c"`
	Packet    int               `json:"p"`           // bytes of a chunk in one packet
	Streams   int               `json:"t"`           // of a subgroup
	NoMcast   string            `json:"m,omitempty"` // reason why there is no multicast
	Calibrate bool              `json:"q,omitempty"` // all ranks want the benchmark
	Inc       int               `json:"n,omitempty"` // payload for aggregators
	Addrs     addresses         `json:"a"`           // by rank; empty on the verbs fabric
	Racks     words             `json:"r"`           // by rank
	Sharing   words             `json:"h"`           // by rank: number of ranks on its machine
	Verbs     []json.RawMessage `json:"d,omitempty"` // by rank; empty on the IP fabric
}

// agree finds the terms. A chunk size that the settings ask for may be as large as long and take several packets.
func agree(cards []card, long int) (terms, error) {
	t := terms{Chunk: cards[0].Chunk, Streams: cards[0].Streams, Calibrate: true, Inc: cards[0].Inc}
	var addrs, racks []string
	for r, c := range cards {
		if err := c.conflict(r, &cards[0]); err != nil {
			return terms{}, err
		}
		if t.NoMcast == "" {
			t.NoMcast = c.NoMcast
		}
		t.Chunk, t.Streams = min(t.Chunk, c.Chunk), min(t.Streams, c.Streams)
		t.Calibrate, t.Inc = t.Calibrate && c.Calibrate, min(t.Inc, c.Inc)
		addrs, racks = append(addrs, c.Addr), append(racks, c.Rack)
		if c.Verbs != nil {
			t.Verbs = append(t.Verbs, c.Verbs)
		}
	}
	var err error
	if t.Addrs, err = packAddresses(addrs); err != nil {
		return terms{}, err
	}
	t.Racks, t.Sharing = packWords(racks), packWords(sharing(cards))
	t.Packet, t.Streams = t.Chunk, max(1, t.Streams)
	long = max(long, t.Chunk)
	if a := cards[0].Asked; a > long && len(cards) > 1 && t.NoMcast == "" {
		return terms{}, fmt.Errorf("a chunk of %d bytes (Options.Chunk) does not fit the network: "+
			"want at most %d, of which one packet takes %d", a, long, t.Packet)
	} else if a > 0 {
		t.Chunk = a
	}
	return t, nil
}

// conflict returns an error if rank r, whose card this is, cannot work with rank 0.
func (c *card) conflict(r int, root *card) error {
	switch {
	case c.Error != "":
		return fmt.Errorf("rank %d cannot take part: %s", r, c.Error)
	case c.Fabric != root.Fabric:
		return fmt.Errorf("rank %d uses the fabric %s, rank 0 uses %s: "+
			"use the same Options.Fabric or ALLCAST_FABRIC on all ranks", r, c.Fabric, root.Fabric)
	case c.V6 != root.V6:
		return fmt.Errorf("rank %d and rank 0 use different IP versions: "+
			"set MASTER_ADDR or ALLCAST_IFNAME so that all ranks use the same", r)
	case c.Subgroups != root.Subgroups || c.Asked != root.Asked:
		return fmt.Errorf("rank %d has other options than rank 0 (%d and %d subgroups, chunks of %d and %d bytes): "+
			"use the same on all ranks", r, c.Subgroups, root.Subgroups, c.Asked, root.Asked)
	case c.Rate != root.Rate:
		return fmt.Errorf("rank %d has another network rate than rank 0 (%g and %g bit/s): "+
			"use the same Options.Rate or ALLCAST_RATE on all ranks", r, c.Rate, root.Rate)
	case c.Integrity != root.Integrity:
		return fmt.Errorf("rank %d runs %s integrity checks, rank 0 %s: "+
			"use the same Options.Integrity or ALLCAST_INTEGRITY on all ranks", r, with[c.Integrity], with[root.Integrity])
	case c.Tree != root.Tree:
		return fmt.Errorf("rank %d has other aggregators than rank 0: "+
			"use the same Options.Aggregators or ALLCAST_AGGREGATORS on all ranks", r)
	case c.Groups != root.Groups:
		return fmt.Errorf("rank %d has other multicast groups than rank 0: "+
			"use the same Options.Groups and CommGroups (ALLCAST_GROUPS, ALLCAST_COMM_GROUPS) on all ranks", r)
	}
	return nil
}

var with = map[bool]string{true: "with", false: "without"}

// groupsHash lets ranks compare their groups; it is 0 for none.
func groupsHash(groups []netip.AddrPort, comms netip.Prefix) uint64 {
	if len(groups) == 0 && !comms.IsValid() {
		return 0
	}
	h := fnv.New64a()
	h.Write([]byte(comms.String() + ","))
	for _, g := range groups {
		h.Write([]byte(g.String() + ","))
	}
	return h.Sum64() >> 11 // fits a JSON number exactly
}
