package allcast_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/ipv4"

	"github.com/allcast/allcast"
)

// manyStrangers, set to anything, runs TestStrangersAtScale.
const manyStrangers = "ALLCAST_TEST_STRANGERS"

// TestStrangers gathers while strangers who do not have the key send what they can
// think of to the job's multicast group and to its listeners. One of them listens to the
// group as well, and plays back what it hears. All data must be right, every call must
// end well, and what strangers sent must have been counted.
func TestStrangers(t *testing.T) {
	const size, n = 4, 30_000
	const datagrams, connections = 20_000, 200
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	group := freeGroup(t)
	o := allcast.Options{
		Size: size, Addr: l.Addr().String(), Groups: []netip.AddrPort{group}, Chunk: 1000,
		Key: bytes.Repeat([]byte{7}, 32), JoinTimeout: time.Minute,
		Logger: slog.New(slog.DiscardHandler), // it would tell of the first strangers
	}

	// At the rendezvous strangers come first: they are in the backlog before rank 0 looks.
	knock := &knocker{rnd: rand.New(rand.NewPCG(1, 1))}
	defer knock.close()
	for range connections / 2 {
		knock.at(l.Addr().String())
	}

	var joined sync.WaitGroup // every rank, whether it could or not
	joined.Add(size)
	turn := make(chan struct{}, 1) // rank 0: another operation has begun
	var calm atomic.Bool           // the strangers have had enough
	errs := make([]error, size)
	stats := make([]allcast.Stats, size)
	var calls int
	var ranks, strangers sync.WaitGroup
	for r := range size {
		ranks.Go(func() {
			o := o
			o.Rank = r
			c, err := allcast.JoinHooked(ctx, o, onSocket(l, r))
			joined.Done()
			if err != nil {
				errs[r] = err
				calm.Store(true)
				return
			}
			k, err := gatherUntil(ctx, c, n, &calm, turn)
			stats[r] = c.Stats()
			if r == 0 {
				calls = k
			}
			errs[r] = errors.Join(err, c.Close())
		})
	}
	joined.Wait()

	ended := make(chan struct{}) // the ranks have: nobody takes turns any more
	hear := newEavesdropper(t, group)
	s := newForger(t, group, hear)
	strangers.Go(func() { hear.run(s.conn.LocalAddr().(*net.UDPAddr).AddrPort()) })
	var sent int
	strangers.Go(func() {
		defer calm.Store(true)
		defer hear.close()
		defer s.close()
		addrs := listening(t)
		// A few with every operation, so that they meet all of its phases.
		const batch = 100
		for done := 0; done < datagrams; done += batch {
			select {
			case <-turn:
			case <-ended:
				return
			}
			for range batch {
				if s.send() {
					sent++
				}
			}
			for have := connections / 2 * done / datagrams; len(addrs) > 0 && have < connections/2*(done+batch)/datagrams; have++ {
				knock.at(addrs[have%len(addrs)])
			}
		}
	})
	ranks.Wait()
	close(ended)
	strangers.Wait()
	for r, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	var rejected uint64
	for r, s := range stats {
		rejected += s.RejectedConns
		if s.ForeignChunks == 0 {
			t.Errorf("rank %d has counted no strangers", r)
		}
		t.Logf("rank %d: %d foreign, %d duplicate, %d dropped, %d repaired", r, s.ForeignChunks, s.DuplicateChunks, s.DroppedChunks, s.RepairedChunks)
	}
	if rejected == 0 && runtime.GOOS == "linux" { // elsewhere they do not find the listeners
		t.Error("no rank has counted a stranger's connection")
	}
	t.Logf("%d datagrams and %d connections of strangers, %d Allgathers", sent, knock.made, calls)
}

// gatherUntil gathers until rank 0 finds that it is enough. It says so in what it
// contributes, so that all ranks stop after the same call.
func gatherUntil(ctx context.Context, c *allcast.Comm, n int, enough *atomic.Bool, turn chan<- struct{}) (calls int, err error) {
	if works, why := c.Multicast(); !works {
		return 0, fmt.Errorf("no multicast: %s", why)
	}
	got := make([]byte, n*c.Size())
	for last := false; !last; calls++ {
		mine := pattern(uint64(calls), c.Rank(), n)
		if c.Rank() == 0 {
			mine[0] = 0
			if enough.Load() {
				mine[0] = 1
			}
			select {
			case turn <- struct{}{}:
			default: // the strangers are at it
			}
		}
		clear(got)
		if err := c.Allgather(ctx, mine, got, allcast.WithAlgorithm("mcast")); err != nil {
			return calls, err
		}
		last = got[0] == 1
		want := gathered(uint64(calls), c.Size(), n)
		want[0] = got[0]
		if !bytes.Equal(got, want) || got[0] > 1 {
			return calls, fmt.Errorf("wrong data after call %d", calls)
		}
	}
	return calls, nil
}

// freeGroup is a multicast group that nobody is likely to use now.
func freeGroup(t *testing.T) netip.AddrPort {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	port := c.LocalAddr().(*net.UDPAddr).Port
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{239, 255, byte(port >> 8), byte(port)}), uint16(port))
}

func loopback(t *testing.T) *net.Interface {
	t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		if all[i].Flags&net.FlagLoopback != 0 {
			return &all[i]
		}
	}
	t.Skip("no loopback interface")
	return nil
}

// An eavesdropper joins the group and keeps some of what it last heard.
type eavesdropper struct {
	conn   *net.UDPConn
	heard  [256]atomic.Pointer[[]byte]
	latest atomic.Pointer[[]byte]
}

func newEavesdropper(t *testing.T, group netip.AddrPort) *eavesdropper {
	t.Helper()
	c, err := net.ListenMulticastUDP("udp4", loopback(t), net.UDPAddrFromAddrPort(group))
	if err != nil {
		t.Fatal(err)
	}
	return &eavesdropper{conn: c}
}

func (e *eavesdropper) close() { _ = e.conn.Close() }

// run listens, to all but one: what a forger sends is not worth repeating, and bit by bit
// it could come back as a chunk with the right token and other data.
func (e *eavesdropper) run(but netip.AddrPort) {
	b := make([]byte, 1<<16)
	for i := 0; ; i++ {
		k, from, err := e.conn.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		if netip.AddrPortFrom(from.Addr().Unmap(), from.Port()) == but || k < 16 {
			continue
		}
		d := bytes.Clone(b[:k])
		e.heard[i%len(e.heard)].Store(&d)
		e.latest.Store(&d)
	}
}

// A forger sends datagrams to the group.
type forger struct {
	conn  *net.UDPConn
	group netip.AddrPort
	hear  *eavesdropper
	rnd   *rand.Rand
	n     int
}

func newForger(t *testing.T, group netip.AddrPort, hear *eavesdropper) *forger {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err == nil {
		p := ipv4.NewPacketConn(c)
		err = errors.Join(p.SetMulticastInterface(loopback(t)), p.SetMulticastLoopback(true))
	}
	if err != nil {
		t.Fatal(err)
	}
	return &forger{conn: c, group: group, hear: hear, rnd: rand.New(rand.NewPCG(2, 2))}
}

func (f *forger) close() { _ = f.conn.Close() }

// send sends one datagram. Where it begins with a token that was overheard, all that
// follows is as it was, or is too short to be a chunk: who hears tokens can forge chunks
// (SECURITY.md), and that is not what is tried here.
func (f *forger) send() bool {
	const header = 16 // token u64, communicator u32, immediate u32
	var d []byte
	if p := f.hear.heard[f.rnd.IntN(len(f.hear.heard))].Load(); p != nil {
		d = bytes.Clone(*p)
	}
	f.n++
	switch kind := f.n % 6; {
	case len(d) <= header || kind == 0: // noise, of any length
		d = make([]byte, f.rnd.IntN(1500))
		for i := range d {
			d[i] = byte(f.rnd.Uint32())
		}
	case kind == 1: // played back
	case kind == 2: // cut off, in the header or after it
		d = d[:f.rnd.IntN(len(d))]
	case kind == 3: // any chunk of the running operation or the next, in all but its token
		const psnBits = 24
		le := binary.LittleEndian
		slot := le.Uint32((*f.hear.latest.Load())[12:])>>psnBits + f.rnd.Uint32N(2)
		le.PutUint64(d, f.rnd.Uint64())
		le.PutUint32(d[12:], slot<<psnBits|le.Uint32(d[12:])&(1<<psnBits-1))
		for i := header; i < len(d); i++ {
			d[i] = 0xee
		}
	case kind == 4: // one bit of the token is wrong
		d[f.rnd.IntN(8)] ^= 1 << f.rnd.IntN(8)
		d[len(d)-1] ^= 0xff
	case kind == 5: // longer than any chunk of this operation
		d = slices.Concat(d, []byte{0xee})
	}
	_, err := f.conn.WriteToUDPAddrPort(d, f.group)
	return err == nil // a datagram may be too long for the interface
}

// A knocker makes connections and says the wrong things.
type knocker struct {
	rnd   *rand.Rand
	conns []net.Conn
	made  int
}

// at connects and speaks. Some connections stay open: strangers may be silent.
func (k *knocker) at(addr string) {
	const open = 100
	c, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return // the listener is closed, or its backlog is full
	}
	k.made++
	random := make([]byte, 4096)
	for i := range random {
		random[i] = byte(k.rnd.Uint32())
	}
	var say []byte
	switch k.made % 7 {
	case 0: // nothing
	case 1:
		say = random
	case 2:
		say = []byte("GET / HTTP/1.1\r\nHost: allcast\r\n\r\n")
	case 3:
		say = []byte("ALLCAST\x01") // and then silence
	case 4: // what rank 1 says to rank 0, with a proof that is none
		say = append([]byte("ALLCAST\x01\x01\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00"), random[:64]...)
	case 5: // ranks and sizes that cannot be
		say = append([]byte("ALLCAST\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), random[:64]...)
	case 6:
		say = append([]byte("ALLCAST\x63"), random...) // another version
	}
	_, _ = c.Write(say) // who hangs up on us may
	if k.made%2 == 0 {
		_ = c.Close()
		return
	}
	k.conns = append(k.conns, c)
	if len(k.conns) > open {
		_ = k.conns[0].Close()
		k.conns = k.conns[1:]
	}
}

func (k *knocker) close() {
	for _, c := range k.conns {
		_ = c.Close()
	}
}

// listening finds where this process listens, as a port scan would.
func listening(t *testing.T) (addrs []string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Log("no list of listening sockets here: strangers only go to the rendezvous")
		return nil
	}
	mine := map[string]bool{}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Error(err)
		return nil
	}
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil {
			mine[to] = true
		}
	}
	table, err := os.ReadFile("/proc/self/net/tcp")
	if err != nil {
		t.Error(err)
		return nil
	}
	const listen = "0A" // TCP_LISTEN of linux/tcp_states.h
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) < 10 || f[3] != listen || !mine["socket:["+f[9]+"]"] {
			continue
		}
		host, port, _ := strings.Cut(f[1], ":")
		ip, err := hex.DecodeString(host)
		p, err2 := strconv.ParseUint(port, 16, 16)
		if err != nil || err2 != nil || len(ip) != 4 {
			continue
		}
		// The kernel prints the address as a number of this machine's byte order.
		a := netip.AddrFrom4([4]byte(binary.NativeEndian.AppendUint32(nil, binary.BigEndian.Uint32(ip))))
		addrs = append(addrs, netip.AddrPortFrom(a, uint16(p)).String())
	}
	if len(addrs) == 0 {
		t.Error("found no listening socket of this process")
	}
	return addrs
}
