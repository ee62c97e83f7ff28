package doctor

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/ipv4"
)

const (
	header      = 20 // magic, phase, sender, number
	arrivalTime = time.Second
	wantBuffer  = 32 << 20
)

// prober sends and receives the datagrams of a check.
type prober struct {
	rank   int
	group  netip.AddrPort
	magic  [8]byte
	member *net.UDPConn // receives multicast
	own    *net.UDPConn // sends all, and receives unicast
	tcp    net.Listener
	igmp   *ipv4.PacketConn // nil without the privilege
	wg     sync.WaitGroup

	mu      sync.Mutex
	tallies map[[2]uint32]*tally // by phase and rank
	seen    query
}

// tally counts the datagrams of one rank in one phase.
type tally struct {
	count, reordered int
	next             uint32 // one more than the highest number
	have             []bool // by number, if it matters that duplicates do not count
}

// query is what a machine has seen of queriers.
type query struct {
	From    string // address of the last one; "" for none
	Unknown bool   // the machine cannot see them
}

func newProber(c card, group netip.AddrPort, seed [32]byte, rank int) (*prober, error) {
	ifi, err := net.InterfaceByName(c.Iface)
	if err != nil {
		return nil, err
	}
	p := &prober{rank: rank, group: group, magic: [8]byte(seed[:8]), tallies: map[[2]uint32]*tally{}}
	p.member, err = net.ListenMulticastUDP("udp4", ifi, net.UDPAddrFromAddrPort(group))
	if err != nil {
		return nil, fmt.Errorf("joining group %v on %s: %w", group.Addr(), c.Iface, err)
	}
	if p.own, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(c.Addr)); err != nil {
		_ = p.member.Close()
		return nil, err
	}
	if p.tcp, err = net.Listen("tcp4", netip.AddrPortFrom(c.Addr.Addr(), 0).String()); err != nil {
		_, _ = p.member.Close(), p.own.Close()
		return nil, err
	}
	out := ipv4.NewPacketConn(p.own)
	_ = out.SetMulticastInterface(ifi) // a send that leaves by another interface does not arrive, which is a finding
	_ = out.SetMulticastTTL(16)
	dontFragment(p.own)
	enlarge(p.member, wantBuffer)
	enlarge(p.own, 4<<20)
	p.listenIGMP(ifi)
	p.wg.Go(func() { p.receive(p.member) })
	p.wg.Go(func() { p.receive(p.own) })
	p.wg.Go(p.accept)
	return p, nil
}

func (p *prober) addr() netip.AddrPort {
	a, ok := p.own.LocalAddr().(*net.UDPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a.AddrPort().Addr().Unmap(), a.AddrPort().Port())
}

func (p *prober) tcpPort() int {
	a, ok := p.tcp.Addr().(*net.TCPAddr)
	if !ok {
		return 0
	}
	return a.Port
}

func (p *prober) close() {
	_, _, _ = p.member.Close(), p.own.Close(), p.tcp.Close()
	if p.igmp != nil {
		_ = p.igmp.Close()
	}
	p.wg.Wait()
}

// accept answers the other ranks' connections, which is all they check.
func (p *prober) accept() {
	for {
		conn, err := p.tcp.Accept()
		if err != nil {
			return
		}
		_ = conn.Close()
	}
}

// send sends a datagram. One that cannot leave does not arrive, which is a finding.
func (p *prober) send(to netip.AddrPort, phase, number uint32, size int) {
	b := make([]byte, max(size, header))
	copy(b, p.magic[:])
	binary.LittleEndian.PutUint32(b[8:], phase)
	binary.LittleEndian.PutUint32(b[12:], uint32(p.rank))
	binary.LittleEndian.PutUint32(b[16:], number)
	_, _ = p.own.WriteToUDPAddrPort(b, to)
}

// pace multicasts datagrams at a rate, some per millisecond.
func (p *prober) pace(ctx context.Context, phase uint32, n, size int, rate float64) {
	gap := time.Duration(float64(size+overhead) * 8 / rate * float64(time.Second))
	start := time.Now()
	for i := range n {
		if due := time.Duration(i) * gap; due > time.Since(start)+time.Millisecond {
			select {
			case <-time.After(due - time.Since(start)):
			case <-ctx.Done():
				return
			}
		}
		p.send(p.group, phase, uint32(i), size)
	}
}

func (p *prober) receive(conn *net.UDPConn) {
	b := make([]byte, 1<<16)
	for {
		n, err := conn.Read(b)
		if err != nil {
			return
		}
		if n >= header && [8]byte(b[:8]) == p.magic {
			p.take(binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:]), binary.LittleEndian.Uint32(b[16:]))
		}
	}
}

// expect makes the datagrams of a phase count once each.
func (p *prober) expect(phase uint32, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tallies[[2]uint32{phase, ^uint32(0)}] = &tally{count: n}
}

func (p *prober) take(phase, from, number uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.tallies[[2]uint32{phase, from}]
	if t == nil {
		t = &tally{}
		if all := p.tallies[[2]uint32{phase, ^uint32(0)}]; all != nil {
			t.have = make([]bool, all.count)
		}
		p.tallies[[2]uint32{phase, from}] = t
	}
	t.take(number)
}

func (t *tally) take(number uint32) {
	if t.have != nil {
		if int(number) >= len(t.have) || t.have[number] {
			return
		}
		t.have[number] = true
	}
	t.count++
	if number < t.next {
		t.reordered++
	} else {
		t.next = number + 1
	}
}

// tally returns what has arrived of a rank in a phase.
func (p *prober) tally(phase uint32, from int) tally {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.tallies[[2]uint32{phase, uint32(from)}]; t != nil {
		return *t
	}
	return tally{}
}

// wait waits until enough datagrams of some ranks have arrived, or until none has for a while.
func (p *prober) wait(ctx context.Context, phase uint32, from []int, enough int) {
	last, total := time.Now(), -1
	for ctx.Err() == nil && time.Since(last) < arrivalTime {
		done, sum := true, 0
		for _, r := range from {
			n := p.tally(phase, r).count
			sum += n
			done = done && n >= enough
		}
		if done {
			return
		}
		if sum != total {
			last, total = time.Now(), sum
		}
		time.Sleep(time.Millisecond)
	}
}

// listenIGMP notes queries, if this process may see them.
func (p *prober) listenIGMP(ifi *net.Interface) {
	conn, err := net.ListenPacket("ip4:igmp", "0.0.0.0")
	if err != nil {
		p.seen.Unknown = true
		return
	}
	p.igmp = ipv4.NewPacketConn(conn)
	_ = p.igmp.SetControlMessage(ipv4.FlagInterface, true)
	p.wg.Go(func() {
		b := make([]byte, 1500)
		for {
			n, cm, from, err := p.igmp.ReadFrom(b)
			if err != nil {
				return
			}
			const membershipQuery = 0x11 // RFC 3376, section 4
			if n < 8 || b[0] != membershipQuery || cm != nil && cm.IfIndex != ifi.Index {
				continue
			}
			p.mu.Lock()
			p.seen.From = from.String()
			p.mu.Unlock()
		}
	})
}

func (p *prober) query() query {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen
}
