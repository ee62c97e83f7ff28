package ip

import (
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/fabric"
)

// reviewSum adds what comes to memory of its own, as the engine does in a reduction.
type reviewSum struct {
	*tcpRec
	mem []byte
}

func (r *reviewSum) Data(_ int, _ fabric.Piece, _ int64, b *fabric.Buffer) {
	for i := 0; i+2 <= len(b.B); i += 2 { // elements of two bytes, as bfloat16
		binary.LittleEndian.PutUint16(r.mem[i:], binary.LittleEndian.Uint16(r.mem[i:])+binary.LittleEndian.Uint16(b.B[i:]))
	}
	b.Release()
}

// While one peer sends faster than we take it, peerIn.read never returns: who leads reads
// nothing else, neither other peers' messages (heartbeats!) nor datagrams, and does not look whether
// what it waits for has ended.
func TestReviewOnePeerStarvesOthers(t *testing.T) {
	var addrs []string
	var ls []net.Listener
	for range 3 {
		l, err := Listen(tcpV4)
		if err != nil {
			t.Fatal(err)
		}
		ls, addrs = append(ls, l), append(addrs, l.Addr().String())
	}
	poller, err := NewPoller()
	if err != nil {
		t.Fatal(err)
	}
	var ranks []*TCP
	var recs []*tcpRec
	for i := range ls {
		cfg := TCPConfig{Rank: i, Size: 3, Listener: ls[i], Addrs: addrs, Secret: tcpSecret, Local: tcpV4}
		rec := newTCPRec()
		var h fabric.Handler = rec
		if i == 0 {
			cfg.Poller = poller
			h = &reviewSum{rec, make([]byte, frameMaxPart)}
		}
		r, err := NewTCP(cfg, h)
		if err != nil {
			t.Fatal(err)
		}
		ranks, recs = append(ranks, r), append(recs, rec)
	}
	ranks[2].Send(0, []byte("hello"))
	recs[0].waitMsg(t, 2, "hello")
	const size, puts = 256 << 20, 16
	data := make([]byte, size)
	for i := range puts {
		ranks[1].Put(0, fabric.Piece{Op: fabric.OpKey{Seq: 1}, Nth: uint32(i), Len: size}, data)
	}
	begin := time.Now()
	worst := time.Duration(0)
	for i := 0; time.Since(begin) < 6*time.Second; i++ {
		time.Sleep(10 * time.Millisecond)
		msg := time.Now().String()
		sent := time.Now()
		ranks[2].Send(0, []byte(msg))
		recs[0].waitMsg(t, 2, msg)
		worst = max(worst, time.Since(sent))
	}
	got := ranks[0].Stats()[1].Received
	for _, r := range ranks {
		go r.Close()
	}
	for _, r := range ranks {
		r.Close()
	}
	poller.Close()
	t.Logf("a small message of another peer took up to %v; %d MB came from the first one meanwhile", worst, got>>20)
	if worst > 500*time.Millisecond {
		t.Errorf("starved")
	}
}
