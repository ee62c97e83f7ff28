package bpf

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/wire"
)

// TestAgainstIntake feeds the same random datagrams to the programs and to mcast.Intake, the receive
// path of the process. After every step it compares the state of all chunks, the counters and every
// byte of the receive buffer.
func TestAgainstIntake(t *testing.T) {
	for _, hook := range []Hook{SockFilter, TCX} {
		for _, gro := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/GRO=%v", hook, gro), func(t *testing.T) {
				w := newLoopback(t, Config{Chunk: differChunk, Hook: hook}, differSubgroups, gro)
				buf := w.alloc(t, differRanks*differChunk*(differChunks+1))
				for seed := range uint64(100) {
					d := newDiffer(t, w, buf, gro, seed)
					for range 60 {
						d.step()
					}
					d.close()
				}
			})
		}
	}
}

const (
	differSubgroups = 2
	differRanks     = 5
	differChunk     = 512
	differChunks    = 40 // per rank
	differPSNBits   = 20 // the bits of testMask
)

// differ runs one operation at a time, both in the kernel and in an Intake.
type differ struct {
	t   *testing.T
	w   *loopbackSockets
	gro bool
	rng *rand.Rand

	layout wire.Layout
	seq    uint64
	token  uint64
	stale  []uint64 // tokens of finished operations
	geo    *mcast.Geometry
	data   []byte // payload of all chunks
	rank   int

	// State in the kernel.
	buf    []byte // memory that holds mem
	mem    []byte
	area   fabric.Area
	kernel []*follower // by subgroup; nil if the subgroup receives no chunks

	// State in the process.
	want    []byte
	intakes []*mcast.Intake
	places  []*mcast.Placement

	claims []differClaim
}

// differClaim is a set of chunks that the process has claimed for a read.
type differClaim struct {
	sub  int
	runs []wire.Range
}

func newDiffer(t *testing.T, w *loopbackSockets, buf []byte, gro bool, seed uint64) *differ {
	t.Helper()
	layout, err := wire.NewLayout(differPSNBits)
	must(t, err)
	d := &differ{t: t, w: w, buf: buf, gro: gro, rng: rand.New(rand.NewPCG(seed, 0xd1ff)), layout: layout}
	d.open()
	return d
}

// open starts an operation of a random shape.
func (d *differ) open() {
	t, r := d.t, d.rng
	d.seq++
	d.token = newToken()
	p := 1 + r.IntN(differRanks)
	s := mcast.Shape{
		Kind: wire.Allgather, Counts: make([]int64, p),
		Chunk: 1 + r.IntN(differChunk), Chains: 1, Subgroups: 1 + r.IntN(differSubgroups),
	}
	for i := range s.Counts {
		s.Counts[i] = int64(r.IntN(differChunks * s.Chunk))
		if r.IntN(4) == 0 {
			s.Counts[i] = 0
		}
	}
	s.Counts[r.IntN(p)] += int64(s.Chunk)
	plan, err := mcast.Plan(s, d.layout)
	must(t, err)
	d.geo, d.rank = plan[0], r.IntN(p)
	d.data = randomBytes(int(d.geo.Bytes()))
	at := r.IntN(len(d.buf) - len(d.data) + 1)
	d.mem, d.want = d.buf[at:at+len(d.data)], make([]byte, len(d.data))
	clear(d.mem)
	if d.area = d.w.Area(d.mem); d.area == nil || d.area.Stage() != nil {
		t.Fatal("want an area without a stage")
	}
	op := mcast.New(mcast.Config{
		Geometry: d.geo, Rank: d.rank, Comm: testComm, Seq: d.seq, Est: mcast.NewEstimator(mcast.Limits{}),
	})
	d.places, d.kernel, d.intakes, d.claims = op.Placements(), nil, nil, nil
	for _, pl := range d.places {
		in := mcast.NewIntake(d.layout, 1<<30, &place.Taken{}, func() *mcast.Report { return &mcast.Report{} })
		in.Open(d.token, pl)
		d.intakes = append(d.intakes, in)
		d.kernel = append(d.kernel, d.openPlacement(pl))
	}
}

func (d *differ) openPlacement(pl *mcast.Placement) *follower {
	if pl.Len() == 0 {
		return nil
	}
	own := pl.Own()
	l := &fabric.PlacementSpec{
		Stream: pl.Stream, Token: d.token, Comm: testComm, Imm: d.layout.Imm(d.seq, 0), Mask: testMask,
		Chunk: d.geo.Chunk(), PSNs: pl.Len(),
		Own: fabric.Run{PSN: own.PSN, N: own.N},
	}
	d.geo.Blocks(pl.Stream, func(off int64, psn, n uint32, tail int) {
		l.Blocks = append(l.Blocks, fabric.Block{Off: off, Run: fabric.Run{PSN: psn, N: n}, Tail: tail})
	})
	p := d.area.Open(l)
	if p == nil {
		d.t.Fatal("Open refused the placement")
	}
	return follow(p, l)
}

// step applies one random action to both sides and compares them.
func (d *differ) step() {
	switch d.rng.IntN(20) {
	case 0:
		d.claim()
	case 1:
		d.finish()
	case 2:
		d.take()
	case 3:
		d.close()
		d.open()
	case 4, 5, 6:
		d.super()
	case 7:
		d.reuse()
	default:
		for range 1 + d.rng.IntN(12) {
			sub := d.rng.IntN(len(d.places))
			b := d.datagram(sub)
			d.w.transmit(d.t, sub, b, nil)
			d.intake(sub, b)
		}
		d.w.settle(d.t)
	}
	d.compare()
}

// datagram returns a datagram for a subgroup: usually a chunk of the operation, sometimes an invalid one.
func (d *differ) datagram(sub int) []byte {
	r, pl := d.rng, d.places[sub]
	h := wire.Header{Token: d.token, Comm: testComm, Imm: d.layout.Imm(d.seq, 0)}
	var payload []byte
	if pl.Len() > 0 {
		psn := uint32(r.IntN(int(pl.Len())))
		off, n := pl.Locate(psn)
		h.Imm, payload = d.layout.Imm(d.seq, psn), d.data[off:off+int64(n)]
	}
	switch r.IntN(24) {
	case 0:
		h.Imm = d.layout.Imm(d.seq, pl.Len()+uint32(r.IntN(100))) // beyond the last chunk
	case 1:
		h.Imm = d.layout.Imm(d.seq+1+uint64(r.IntN(9)), 0) // another slot
	case 2:
		h.Comm++
	case 3:
		h.Token = newToken() // unknown token
	case 4:
		if len(d.stale) > 0 {
			h.Token = d.stale[r.IntN(len(d.stale))] // finished operation
		}
	case 5:
		payload = payload[:r.IntN(len(payload)+1)] // truncated, or complete
	case 6:
		payload = append(bytes.Clone(payload), make([]byte, 1+r.IntN(20))...)
	case 7:
		return datagram(h, nil)[:r.IntN(wire.HeaderSize)] // incomplete header
	}
	return datagram(h, payload)
}

// super sends a super-packet: datagrams of equal length, except that the last may be shorter.
func (d *differ) super() {
	sub := d.rng.IntN(len(d.places))
	var list [][]byte
	for range 2 + d.rng.IntN(10) {
		b := d.datagram(sub)
		if len(list) > 0 && len(b) > len(list[0]) || len(b) == 0 {
			continue
		}
		list = append(list, b)
		if len(b) < len(list[0]) {
			break
		}
	}
	if len(list) < 2 {
		return
	}
	d.w.transmit(d.t, sub, bytes.Join(list, nil), segmented(len(list[0])))
	if !d.gro {
		d.w.sent[sub] += uint64(len(list)) - 1
	}
	for _, b := range list {
		d.intake(sub, b)
	}
	d.w.settle(d.t)
}

// reuse simulates a race: a program has found the placement of an operation, then the operation ends and
// another one takes over its words, with a new generation. The program must not change these words.
// The Intake, whose placement is closed meanwhile, ignores the datagrams as well. Afterwards, reuse
// restores the generation.
func (d *differ) reuse() {
	sub := d.rng.IntN(len(d.places))
	pl, k, in := d.places[sub], d.kernel[sub], d.intakes[sub]
	if k == nil {
		return
	}
	const generation = 1 << 32
	words := k.Words()
	for i := range words {
		words[i].Claimed.Add(generation)
	}
	in.Close(pl)
	passed := d.w.received[sub]
	const datagrams = 8
	for range datagrams {
		psn := uint32(d.rng.IntN(int(pl.Len())))
		off, n := pl.Locate(psn)
		h := wire.Header{Token: d.token, Comm: testComm, Imm: d.layout.Imm(d.seq, psn)}
		b := datagram(h, d.data[off:off+int64(n)])
		d.w.transmit(d.t, sub, b, nil)
		d.intake(sub, b)
	}
	d.w.settle(d.t)
	if passed = d.w.received[sub] - passed; passed != datagrams {
		d.t.Fatalf("%d of %d datagrams of a finished operation reach the process", passed, datagrams)
	}
	d.compare()
	for i := range words {
		words[i].Claimed.Add(^uint64(generation - 1)) // subtracts one generation
	}
	in.Open(d.token, pl)
}

// intake passes a datagram to the Intake.
func (d *differ) intake(sub int, b []byte) {
	if len(b) < wire.HeaderSize {
		return // the socket counts it
	}
	h, payload := wire.ParseHeader(b), b[wire.HeaderSize:]
	in := d.intakes[sub]
	p, psn, off, v := in.Judge(h.Token, h.Comm, h.Imm, len(payload))
	if v != mcast.Placed {
		in.Ignore(p, v, 1)
		return
	}
	copy(d.want[off:], payload)
	in.Place(p, wire.Range{PSN: psn, N: 1})
}

// span picks a random run of chunks of a random subgroup; n is 0 if the subgroup has none.
func (d *differ) span() (sub int, psn, n uint32) {
	sub = d.rng.IntN(len(d.places))
	size := int(d.places[sub].Len())
	if size == 0 {
		return sub, 0, 0
	}
	psn = uint32(d.rng.IntN(size))
	return sub, psn, uint32(1 + d.rng.IntN(min(40, size-int(psn))))
}

// claim claims chunks for a read.
func (d *differ) claim() {
	sub, psn, n := d.span()
	if n == 0 {
		return
	}
	var got []wire.Range
	for d.kernel[sub].Claim(psn, n, func(psn, n uint32) { got = append(got, wire.Range{PSN: psn, N: n}) }) {
		d.t.Fatal("Claim reports a concurrent write, but no packet is in flight")
	}
	want, _ := d.intakes[sub].Claim(d.places[sub], []wire.Range{{PSN: psn, N: n}}, nil)
	if size(got) != size(want) {
		d.t.Fatalf("claimed %v in the kernel, %v in the process", got, want)
	}
	d.claims = append(d.claims, differClaim{sub, want})
}

func size(runs []wire.Range) (n uint32) {
	for _, q := range runs {
		n += q.N
	}
	return n
}

// finish completes the oldest read.
func (d *differ) finish() {
	if len(d.claims) == 0 {
		return
	}
	c := d.claims[0]
	d.claims = d.claims[1:]
	d.place(c)
}

// place writes claimed chunks on both sides and marks them as in place.
func (d *differ) place(c differClaim) {
	for _, q := range c.runs {
		for psn := q.PSN; psn < q.PSN+q.N; psn++ {
			off, n := d.places[c.sub].Locate(psn)
			copy(d.mem[off:off+int64(n)], d.data[off:])
			copy(d.want[off:off+int64(n)], d.data[off:])
		}
		d.kernel[c.sub].Finish(q.PSN, q.N)
		d.places[c.sub].Finish(q.PSN, q.N)
	}
}

// take lets the process place a chunk that reached its socket.
func (d *differ) take() {
	sub, psn, n := d.span()
	if n == 0 {
		return
	}
	got, want := d.kernel[sub].Take(psn), d.places[sub].Take(psn)
	if got != want {
		d.t.Fatalf("Take(%d) is %v in the kernel, %v in the process", psn, got, want)
	}
	if got {
		d.place(differClaim{sub, []wire.Range{{PSN: psn, N: 1}}})
	}
}

// compare compares chunk states, counters and bytes.
func (d *differ) compare() {
	for sub, k := range d.kernel {
		if k == nil {
			continue
		}
		p := d.places[sub]
		for psn := range p.Len() {
			if k.Free(psn) != p.Free(psn) || k.InPlace(psn) != p.InPlace(psn) || k.ForRead(psn) != p.ForRead(psn) {
				d.t.Fatalf("chunk %d of subgroup %d: free %v, in place %v, for a read %v in the kernel; %v, %v, %v in the process",
					psn, sub, k.Free(psn), k.InPlace(psn), k.ForRead(psn), p.Free(psn), p.InPlace(psn), p.ForRead(psn))
			}
		}
		var want mcast.Ignored
		if r := d.intakes[sub].Flush(); r != nil {
			want = r.Ignored
		}
		duplicates, late, foreign := k.Ignored()
		if duplicates != want.Duplicates || late != want.Late || foreign != want.Foreign {
			d.t.Fatalf("subgroup %d: %d duplicates, %d late, %d foreign in the kernel; %+v in the process",
				sub, duplicates, late, foreign, want)
		}
	}
	if !bytes.Equal(d.mem, d.want) {
		d.t.Fatal("the receive buffers of kernel and process differ")
	}
}

// close ends the operation.
func (d *differ) close() {
	for _, k := range d.kernel {
		if k != nil {
			k.Close()
		}
	}
	d.area.Release()
	d.stale = append(d.stale, d.token)
}
