package doctor

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/ip"
	"github.com/allcast/allcast/internal/wire"
)

// patience is how long a datagram may take from one socket to another.
const patience = 2 * time.Second

const loopbackFix = "bring loopback up (ip link set lo up) and let it multicast " +
	"(ip link set lo multicast on; ip route add 239.0.0.0/8 dev lo); " +
	"in a container or sandbox, allow UDP multicast sockets; " +
	"until then use --algo auto, which does not need multicast"

// loopbackFindings sends datagrams from one set of sockets to another, as two ranks would.
func loopbackFindings() (findings []finding, works bool) {
	const check = "multicast on loopback"
	f, err := multicastOnLoopback()
	if err != nil {
		return []finding{missing(check, err.Error(), loopbackFix)}, false
	}
	detail := fmt.Sprintf("a datagram went from one socket to another (%s sockets)", f.Sockets)
	return append([]finding{ok(check, detail)}, featureFindings(f)...), true
}

func multicastOnLoopback() (ip.Features, error) {
	const up = net.FlagUp | net.FlagLoopback
	lo, err := findInterface(func(ifi *net.Interface) bool { return ifi.Flags&up == up })
	if err == nil && lo == nil {
		err = errors.New("no loopback interface is up")
	}
	if err != nil {
		return ip.Features{}, err
	}
	cfg := ip.McastConfig{
		Interface: lo, Local: netip.MustParseAddr("127.0.0.1"), Groups: ip.GroupsFor(rand.Uint64(), 1, false),
	}
	from, err := ip.OpenMulticast(cfg)
	if err != nil {
		return ip.Features{}, err
	}
	defer func() { _ = from.Close() }()
	to, err := ip.OpenMulticast(cfg)
	if err != nil {
		return ip.Features{}, err
	}
	defer func() { _ = to.Close() }()
	return to.Features(), deliver(from, to)
}

// deliver sends a datagram of full size and waits until it arrives.
func deliver(from, to fabric.Multicast) error {
	h := wire.Header{Token: rand.Uint64()}
	payload := make([]byte, from.Capabilities().Chunk)
	heard := false
	sink := fabric.ChunkFunc(func(got wire.Header, b []byte) {
		heard = heard || got.Token == h.Token && len(b) == len(payload)
	})
	rx := to.Receiver(0)
	var late atomic.Bool
	timer := time.AfterFunc(patience, func() { late.Store(true); rx.Wake() })
	defer timer.Stop()
	batch := &fabric.Batch{Headers: []wire.Header{h}, Payloads: [][]byte{payload}}
	if err := fabric.SendAll(from.Sender(0), batch, time.Second); err != nil {
		return fmt.Errorf("sending: %w", err)
	}
	for !heard {
		if late.Load() {
			return fmt.Errorf("a datagram of %d bytes did not arrive within %v", len(payload), patience)
		}
		if err := rx.Receive(sink); err != nil {
			return fmt.Errorf("receiving: %w", err)
		}
	}
	return nil
}
