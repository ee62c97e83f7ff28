package aggregate

import (
	"net/netip"
	"testing"

	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/reduce"
)

// FuzzDatagrams hands any messages to a worker, with a right token or without. It must not panic, hold a lock, or use
// more memory than the job may.
func FuzzDatagrams(f *testing.F) {
	cfg := Config{Listen: "127.0.0.1:0", SiteKey: siteKey, Buffer: 1 << 20}
	s, err := Listen(cfg)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = s.Close() })
	tree, err := inc.ParseTree("127.0.0.1:1=0-2", 3)
	if err != nil {
		f.Fatal(err)
	}
	s.mu.Lock()
	j, err := s.create(tree, &attach{Session: 7, Secret: secret, Tree: tree.String(), Size: 3, Chunk: 64, Window: 4})
	s.mu.Unlock()
	if err != nil {
		f.Fatal(err)
	}
	j.data.setOwners([]member{{Rank: 2, Addr: netip.MustParseAddrPort("127.0.0.1:9")}})
	w := newWorker(s, s.sockets[0])
	w.table = *s.table.Load()
	tokens := newTokens(secret)
	seed := make([]byte, 2*(inc.HeaderSize+8))
	for child := range uint16(2) {
		h := inc.Header{
			Kind: inc.Contribution, Session: 7, Child: child, Owner: 2, Type: uint8(reduce.F64), Reduce: uint8(reduce.Sum),
		}
		h.Put(seed[int(child)*len(seed)/2:])
	}
	f.Add(seed, len(seed)/2, true)
	f.Add(seed, 0, false)
	f.Add([]byte{}, 0, false)
	f.Fuzz(func(t *testing.T, message []byte, segment int, authentic bool) {
		if segment < 0 || segment > 0 && len(message)/segment > maxSegments {
			return
		}
		each(message, segment, func(d []byte) {
			if authentic && len(d) >= inc.HeaderSize {
				h := inc.ParseHeader(d)
				h.Session, h.Token = 7, tokens.of(h.Comm, h.Number)
				h.Put(d)
			}
			w.handle(d)
		})
		w.release()
		w.stage, w.sums = w.stage[:0], w.sums[:0] // nobody would receive them
		w.count(1)
		if got := j.data.session.Memory(); got > j.memory {
			t.Errorf("%d bytes, and at most %d are reserved", got, j.memory)
		}
	})
}

// BenchmarkContribute measures the work of an aggregator without its sockets, per contribution.
func BenchmarkContribute(b *testing.B) {
	for _, children := range []int{2, 8} {
		b.Run(map[int]string{2: "2 children", 8: "8 children"}[children], func(b *testing.B) {
			s, err := Listen(Config{Listen: "127.0.0.1:0", SiteKey: siteKey})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			tree, err := inc.ParseTree(map[int]string{2: "127.0.0.1:1=0-1", 8: "127.0.0.1:1=0-7"}[children], children)
			if err != nil {
				b.Fatal(err)
			}
			const chunk, window = 1440, 256
			s.mu.Lock()
			j, err := s.create(tree, &attach{
				Session: 7, Secret: secret, Tree: tree.String(), Size: children, Chunk: chunk, Window: window,
			})
			s.mu.Unlock()
			if err != nil {
				b.Fatal(err)
			}
			j.data.setOwners([]member{{Rank: 0, Addr: netip.MustParseAddrPort("127.0.0.1:9")}})
			w := newWorker(s, s.sockets[0])
			w.table = *s.table.Load()
			d := make([]byte, inc.HeaderSize+chunk)
			h := inc.Header{
				Kind: inc.Contribution, Session: 7, Type: uint8(reduce.F32), Reduce: uint8(reduce.Sum),
				Token: newTokens(secret).of(0, 0),
			}
			b.SetBytes(int64(len(d)))
			for n := 0; n < b.N; h.Place += 32 {
				for child := 1; child < children; child++ {
					for i := range uint32(32) {
						c := h
						c.Place, c.Child = h.Place+i, uint16(child)
						c.Put(d)
						w.handle(d)
						n++
					}
				}
				w.release()
				w.stage, w.sums = w.stage[:0], w.sums[:0]
			}
		})
	}
}
