//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/ip"
	"github.com/allcast/allcast/internal/wire"
)

// blast is one host of the bare multicast sender. It executes commands, one per line, until its
// input ends. It sends and counts, without any protocol.
func blast(in io.Reader, out io.Writer) error {
	ifi, err := net.InterfaceByName(os.Getenv("ALLCAST_IFNAME"))
	if err != nil {
		return err
	}
	addrs, err := ifi.Addrs()
	if err != nil {
		return err
	}
	if len(addrs) == 0 {
		return errors.New("the interface that ALLCAST_IFNAME names has no address")
	}
	local, err := netip.ParsePrefix(addrs[0].String())
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(os.Getenv("ALLCAST_GROUPS"), ",")
	group, err := netip.ParseAddrPort(first)
	if err != nil {
		return err
	}
	m, err := ip.OpenMulticast(ip.McastConfig{Interface: ifi, Local: local.Addr(), Groups: []netip.AddrPort{group}})
	if err != nil {
		return err
	}
	count := newCounter(m.Capabilities())
	go func() {
		for m.Receiver(0).Receive(count) == nil {
		}
	}()
	err = serve(m, count, in, out)
	return errors.Join(err, m.Close())
}

func serve(m fabric.Multicast, count *counter, in io.Reader, out io.Writer) error {
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return err
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var b burst
		answer := "ok"
		switch {
		case lines.Text() == "reset":
			count.bytes.Store(0)
			count.last.Store(0)
		case lines.Text() == "report":
			answer = fmt.Sprint(count.bytes.Load(), " ", count.last.Load())
		default:
			if _, err := fmt.Sscan(lines.Text(), &b.start, &b.rate, &b.turn, &b.turns, &b.mine, &b.stride); err != nil {
				return fmt.Errorf("%q: %w", lines.Text(), err)
			}
			if err := b.send(m); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintln(out, answer); err != nil {
			return err
		}
	}
	return nil
}

// burst describes the messages of one host. All hosts together send turns messages back to back, of
// turn bytes each. This host sends the messages mine, mine+stride, and so on.
type burst struct {
	start               int64   // start of the first message of all hosts, on the machine's clock
	rate                float64 // bytes per ns
	turn                int64   // bytes per message
	turns, mine, stride int
}

// sendPatience bounds how long a send waits for room in the network.
const sendPatience = 5 * time.Second

func (b *burst) send(m fabric.Multicast) error {
	caps := m.Capabilities()
	data := make([]byte, b.turn)
	for i := range data {
		data[i] = byte(i) // touch the pages before the measurement
	}
	s := m.Sender(0)
	for t := b.mine; t < b.turns; t += b.stride {
		for off := int64(0); off < b.turn; {
			due := b.start + int64(float64(int64(t)*b.turn+off)/b.rate)
			waitUntil(due)
			batch := fabric.Batch{}
			for len(batch.Headers) < caps.Batch && off < b.turn {
				k := min(int64(caps.Chunk), b.turn-off)
				batch.Headers = append(batch.Headers, wire.Header{})
				batch.Payloads = append(batch.Payloads, data[off:off+k])
				off += k
			}
			if err := fabric.SendAll(s, &batch, sendPatience); err != nil {
				return err
			}
		}
	}
	return nil
}

// waitUntil sleeps instead of spinning, because the receivers need the processor. A sender that
// wakes up late catches up.
func waitUntil(due int64) {
	const enough = 50 * int64(time.Microsecond)
	if d := due - now(); d > enough {
		ts := unix.NsecToTimespec(d)
		_ = unix.Nanosleep(&ts, nil) // an early wake-up only makes the pace uneven
	}
}

// now reads a clock that all hosts share, because they are namespaces of one machine.
func now() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail
	return ts.Nano()
}

// counter counts received bytes, and reuses the same memory for all of them.
type counter struct {
	slots [][]byte
	chunk int
	bytes atomic.Int64
	last  atomic.Int64 // time of the last Idle
}

func newCounter(caps fabric.Capabilities) *counter {
	c := &counter{chunk: caps.Chunk}
	for range caps.Batch {
		c.slots = append(c.slots, make([]byte, caps.Chunk))
	}
	return c
}

func (c *counter) Expect(slots [][]byte) int { return copy(slots, c.slots) }

func (c *counter) Arrived(h []wire.Header) int {
	c.bytes.Add(int64(len(h) * c.chunk))
	return len(h)
}

func (c *counter) Chunk(_ wire.Header, payload []byte) { c.bytes.Add(int64(len(payload))) }

// Idle follows every burst of datagrams, so the last call follows the last datagram.
func (c *counter) Idle() { c.last.Store(now()) }
