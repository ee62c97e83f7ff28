package mcast

import (
	"testing"

	"pgregory.net/rapid"
)

// tenant is an operation that holds room of a Pool.
type tenant struct {
	held uint64
	each Charge
}

func TestPoolLendsWhatItHas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Uint64Range(0, 200).Draw(t, "size")
		p := NewPool(size, nil)
		size = max(1, size)
		var ops []*tenant
		pick := func(t *rapid.T) *tenant {
			if len(ops) == 0 {
				t.Skip("nobody holds anything")
			}
			return ops[rapid.IntRange(0, len(ops)-1).Draw(t, "op")]
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				var held uint64
				for _, o := range ops {
					held += o.held * uint64(o.each)
				}
				if p.lent != held {
					t.Fatalf("lent %d, operations hold %d", p.lent, held)
				}
			},
			"join": func(t *rapid.T) {
				before := p.lent
				total := rapid.Uint64Range(1, 300).Draw(t, "chunks")
				each := ChargeOf(rapid.IntRange(1, 20).Draw(t, "places"), rapid.IntRange(1, 3).Draw(t, "chunks"))
				each = max(each, onePlace)
				n := p.join(total, each)
				checkLoan(t, size, before, n, 0, each)
				if n == 0 || n > total {
					t.Fatalf("a new operation of %d chunks got %d places", total, n)
				}
				ops = append(ops, &tenant{n, each})
			},
			"more": func(t *rapid.T) {
				o := pick(t)
				before := p.lent
				most := o.held + rapid.Uint64Range(0, 100).Draw(t, "can use")
				if most == 0 {
					return // it has consumed everything, and leaves
				}
				n := p.extend(o.held, most, o.each)
				checkLoan(t, size, before, n, o.held, o.each)
				if o.held+n > most {
					t.Fatalf("an operation that can use %d places holds %d", most, o.held+n)
				}
				if o.held += n; o.held == 0 {
					t.Fatalf("an operation that holds nothing got nothing")
				}
			},
			"consume": func(t *rapid.T) {
				o := pick(t)
				n := rapid.Uint64Range(0, o.held).Draw(t, "chunks")
				p.release(n, o.each)
				o.held -= n
			},
			"leave": func(t *rapid.T) {
				o := pick(t)
				p.release(o.held, o.each)
				p.ops--
				for i := range ops {
					if ops[i] == o {
						ops = append(ops[:i], ops[i+1:]...)
						break
					}
				}
			},
		})
		for _, o := range ops {
			p.release(o.held, o.each)
		}
		if p.Lent() != 0 {
			t.Fatalf("%d places did not come back", p.Lent())
		}
	})
}

// checkLoan: beyond its size a Pool lends only the one place that keeps an
// operation from being stuck, and only to one that holds nothing.
func checkLoan(t *rapid.T, size, lent, n, held uint64, each Charge) {
	if lent+n*uint64(each) > size*uint64(onePlace) && (n != 1 || held != 0) && n != 0 {
		t.Fatalf("a pool of %d places had lent %d units and lends %d more places to one that holds %d", size, lent, n, held)
	}
}

// A single operation gets a part at once, so that others find something, and all
// of it when it consumes; a small one no more than it needs.
func TestPoolOneOperationGetsAll(t *testing.T) {
	p := NewPool(64, nil)
	held := p.join(1000, onePlace)
	if held < 1 || held > 32 {
		t.Errorf("at first: %d of 64", held)
	}
	p.release(1, onePlace)
	held--
	if held += p.extend(held, 999, onePlace); held != 64 {
		t.Errorf("then: %d of 64", held)
	}
	if n := NewPool(1000, nil).join(3, onePlace); n != 3 {
		t.Errorf("an operation of 3 chunks got %d places", n)
	}
}
