package attack

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A Knocker connects to listeners and sends invalid data.
type Knocker struct {
	rnd   *rand.Rand
	conns []net.Conn
	made  int
}

// NewKnocker makes a Knocker with a fixed seed.
func NewKnocker() *Knocker { return &Knocker{rnd: rand.New(rand.NewPCG(1, 1))} }

// Made returns the number of connections that were accepted.
func (k *Knocker) Made() int { return k.made }

// At connects and sends data. Half of the connections stay open, because a stranger may also be silent.
func (k *Knocker) At(addr string) {
	const maxOpen = 100
	c, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return // the listener is closed, or its backlog is full
	}
	k.made++
	random := make([]byte, 4096)
	for i := range random {
		random[i] = byte(k.rnd.Uint32())
	}
	var data []byte
	switch k.made % 7 {
	case 0: // nothing
	case 1:
		data = random
	case 2:
		data = []byte("GET / HTTP/1.1\r\nHost: allcast\r\n\r\n")
	case 3: // a greeting without the rest
		data = []byte("ALLCAST\x01")
	case 4: // the message of rank 1 to rank 0, with an invalid proof
		data = append([]byte("ALLCAST\x01\x01\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00"), random[:64]...)
	case 5: // impossible ranks and sizes
		data = append([]byte("ALLCAST\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), random[:64]...)
	case 6: // another version
		data = append([]byte("ALLCAST\x63"), random...)
	}
	_, _ = c.Write(data) // the listener may close the connection meanwhile
	if k.made%2 == 0 {
		_ = c.Close()
		return
	}
	k.conns = append(k.conns, c)
	if len(k.conns) > maxOpen {
		_ = k.conns[0].Close()
		k.conns = k.conns[1:]
	}
}

// Close closes all connections.
func (k *Knocker) Close() error {
	for _, c := range k.conns {
		_ = c.Close()
	}
	return nil
}

// Listening returns the addresses on which this process listens, as a port scan would find them.
func Listening(t *testing.T) (addrs []string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Log("this system does not list listening sockets: strangers connect to the rendezvous only")
		return nil
	}
	own := map[string]bool{}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Error(err)
		return nil
	}
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil {
			own[to] = true
		}
	}
	table, err := os.ReadFile("/proc/self/net/tcp")
	if err != nil {
		t.Error(err)
		return nil
	}
	const listen = "0A" // TCP_LISTEN in linux/tcp_states.h
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) < 10 || f[3] != listen || !own["socket:["+f[9]+"]"] {
			continue
		}
		host, port, _ := strings.Cut(f[1], ":")
		ip, err := hex.DecodeString(host)
		p, err2 := strconv.ParseUint(port, 16, 16)
		if err != nil || err2 != nil || len(ip) != 4 {
			continue
		}
		// The kernel prints the address as a number in the byte order of this machine.
		a := netip.AddrFrom4([4]byte(binary.NativeEndian.AppendUint32(nil, binary.BigEndian.Uint32(ip))))
		addrs = append(addrs, netip.AddrPortFrom(a, uint16(p)).String())
	}
	if len(addrs) == 0 {
		t.Error("found no listening socket of this process")
	}
	return addrs
}
