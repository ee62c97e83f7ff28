package ip

import (
	"net"
	"testing"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/session"
	"github.com/allcast/allcast/internal/testenv"
)

// tcpEcho is a handler that counts messages, and sends each back if it has a TCP.
type tcpEcho struct {
	back *TCP
	msgs chan struct{}
	done chan struct{}
}

func (e *tcpEcho) Message(from int, msg []byte) {
	if e.back != nil {
		e.back.Send(from, msg)
		return
	}
	e.msgs <- struct{}{}
}
func (e *tcpEcho) Data(_ int, _ fabric.Piece, _ int64, b *fabric.Buffer) { b.Release() }
func (e *tcpEcho) ReadIntoDone(int, fabric.ReadID, bool)                 {}
func (e *tcpEcho) Registered(fabric.OpKey, error)                        {}

func (e *tcpEcho) ReadData(_ int, _ fabric.ReadID, _ int64, b *fabric.Buffer) { b.Release() }
func (e *tcpEcho) PutDone(int, fabric.Piece)                                  { e.done <- struct{}{} }
func (e *tcpEcho) Lost(int, error)                                            {}

// newTCPPair starts two ranks. The second sends messages back.
func newTCPPair(t testing.TB) (*TCP, *tcpEcho) {
	t.Helper()
	var ls [2]*net.TCPListener
	var addrs []string
	for i := range ls {
		l, err := Listen(tcpV4)
		if err != nil {
			t.Fatal(err)
		}
		ls[i] = l
		addrs = append(addrs, l.Addr().String())
	}
	var hs [2]*tcpEcho
	var ts [2]*TCP
	for i := range ls {
		hs[i] = &tcpEcho{msgs: make(chan struct{}, 1), done: make(chan struct{}, 1)}
		var err error
		ts[i], err = NewTCP(TCPConfig{
			Rank: i, Size: 2, Listener: ls[i], Addrs: addrs, Secret: tcpSecret, Local: tcpV4,
		}, hs[i])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ts[i].Close() })
	}
	hs[1].back = ts[1]
	return ts[0], hs[0]
}

// Nothing allocates once connections and queues exist.
func TestTCPAllocs(t *testing.T) {
	a, h := newTCPPair(t)
	msg, data := make([]byte, 64), make([]byte, 2*session.MaxPart)
	round := func() {
		a.Send(1, msg)
		<-h.msgs
		a.Put(1, fabric.Piece{Len: int64(len(data))}, data)
		<-h.done
	}
	for range 50 {
		round()
	}
	// The garbage collector empties the pool of the receiver's memory.
	if n := testing.AllocsPerRun(200, round); n >= 1 && !testenv.Race {
		t.Errorf("%v allocations per round", n)
	}
}

func BenchmarkTCPPingPong(b *testing.B) {
	a, h := newTCPPair(b)
	msg := make([]byte, 64)
	b.ReportAllocs()
	for b.Loop() {
		a.Send(1, msg)
		<-h.msgs
	}
}

func BenchmarkTCPPut(b *testing.B) {
	a, h := newTCPPair(b)
	data := make([]byte, 4<<20)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		a.Put(1, fabric.Piece{Len: int64(len(data))}, data)
		<-h.done
	}
}
