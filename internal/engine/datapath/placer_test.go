package datapath

import (
	"testing"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/wire"
)

// restless is a poller that never rests.
type restless struct{ fabric.Poller }

func (restless) Rest(time.Duration) {}

// unplaced is a placement in which the kernel places nothing, so that all chunks come to the worker.
type unplaced struct{ words []place.Word }

func (u unplaced) Words() []place.Word                  { return u.words }
func (u unplaced) Counted() uint64                      { return 0 }
func (u unplaced) Count(uint32) bool                    { return false }
func (u unplaced) Ignored() (dup, late, foreign uint64) { return 0, 0, 0 }
func (u unplaced) Close()                               {}

// A waiting goroutine does not poll while the kernel still has many chunks to place. The kernel never
// places chunks that were fetched or came to the worker. They must not count once they are in place, or
// once the operation has ended.
func TestBulkEnds(t *testing.T) {
	d, sink := bare(t)
	w := newReceiver(d, 0, nil)
	w.poller = restless{}
	d.recvs = []*receiver{w}
	l := benchLanding(t, manyChunks)
	l.kernel = unplaced{make([]place.Word, place.Words(manyChunks))}
	l.place.Map = place.Shared(l.kernel.Words(), manyChunks)
	mem := make([]byte, manyChunks*benchChunk)
	l.op.mem.Store(&mem)
	w.in.Open(l.op.token, l.place)
	look := func(want bool) {
		t.Helper()
		if d.look(); d.Polling.Bulk() != want {
			t.Errorf("bulk: %v", !want)
		}
	}
	look(true)
	w.Chunk(wire.Header{Token: l.op.token, Imm: d.cfg.Layout.Imm(0, 0)}, mem[:benchChunk])
	look(false)
	l.left = manyChunks // fetched instead
	look(true)
	l.op.mem.Store(nil) // the operation has ended; the worker does not know yet
	look(false)
	sink.discard()
}

// Chunks that the kernel has placed in a stage are copied, unless they arrived another way.
func TestUnstage(t *testing.T) {
	d, sink := bare(t)
	w := newReceiver(d, 0, nil)
	const chunks = 40
	l := benchLanding(t, chunks)
	words := make([]place.Word, place.Words(chunks))
	kernel := place.Shared(words, chunks)
	l.kernel, l.staged = unplaced{words}, place.Shared(words, chunks)
	mem, stage := make([]byte, chunks*benchChunk), make([]byte, chunks*benchChunk)
	for i := range stage {
		stage[i] = byte(i / benchChunk)
	}
	l.area = newSharedArea(&staged{mem: stage})
	l.op.mem.Store(&mem)
	w.in.Open(l.op.token, l.place)
	r := &read{landing: l, ranges: []wire.Range{{PSN: 3, N: 2}}}
	w.claim(r)                                                                             // 3 and 4 are fetched
	w.Chunk(wire.Header{Token: l.op.token, Imm: d.cfg.Layout.Imm(0, 7)}, mem[:benchChunk]) // 7 came to the worker
	kernel.Finish(1, 35)
	w.learn(l)
	for psn := range uint32(chunks) {
		placed := psn >= 1 && psn < 36 && psn != 3 && psn != 4
		if l.place.InPlace(psn) != placed {
			t.Errorf("chunk %d in place: %v", psn, !placed)
		}
		if want := byte(psn); placed && psn != 7 && mem[psn*benchChunk] != want {
			t.Errorf("chunk %d was not copied", psn)
		}
	}
	if mem[3*benchChunk]|mem[7*benchChunk] != 0 {
		t.Error("chunks were copied that had come another way")
	}
	var ignored mcast.Ignored
	for _, ev := range sink.take() {
		if ev.Chunks != nil {
			ignored.Late += ev.Chunks.Ignored.Late
			ignored.Duplicates += ev.Chunks.Ignored.Duplicates
		}
	}
	if ignored.Late != 2 || ignored.Duplicates != 1 {
		t.Errorf("%+v", ignored)
	}
}

// Another call gets a stage only after all placements are closed that the kernel fills it for: a datagram
// may come after its call has ended.
func TestStageOutlivesPlacements(t *testing.T) {
	d, _ := bare(t)
	w := newReceiver(d, 0, nil)
	stage := &staged{}
	area := newSharedArea(stage)
	var landings []*landing
	for range 2 {
		l := benchLanding(t, 10)
		l.kernel, l.area = unplaced{make([]place.Word, 1)}, area
		area.users.Add(1)
		w.in.Open(l.op.token, l.place)
		landings = append(landings, l)
	}
	area.leave() // the call has ended
	for i, l := range landings {
		if stage.released {
			t.Errorf("released when %d of 2 placements were closed", i)
		}
		w.forget(l)
		w.forget(l)
	}
	if !stage.released {
		t.Error("never released")
	}
	(*sharedArea)(nil).leave() // a call without one
}

// staged is an area whose chunks are placed in a stage.
type staged struct {
	mem      []byte
	released bool
}

func (s *staged) Open(*fabric.PlacementSpec) fabric.OpenPlacement { return nil }
func (s *staged) Stage() []byte                                   { return s.mem }
func (s *staged) Release()                                        { s.released = true }
