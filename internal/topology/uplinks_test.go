package topology

import "testing"

func TestUplinks(t *testing.T) {
	for _, c := range []struct {
		spec            string
		multiple, ratio float64
	}{{"fat-tree:32,4,2", 1, 4}, {"fat-tree:32,4,2", 8, 1}, {"fat-tree3:1024,32", 0.25, 4}} {
		g, err := Parse(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		u, err := g.Uplinks(c.multiple)
		if err != nil {
			t.Fatal(err)
		}
		if got := u.Oversubscription(); got != c.ratio || u.Shape().Uplink != c.multiple {
			t.Errorf("%s with uplinks of %v: %v:1 oversubscribed, want %v", c.spec, c.multiple, got, c.ratio)
		}
		for _, l := range u.Links {
			want := c.multiple
			if u.IsHost(l.From) || u.IsHost(l.To) {
				want = 1
			}
			if l.Multiple != want {
				t.Fatalf("%s: a link from %s to %s has multiple %v, want %v", c.spec, u.NodeName(l.From), u.NodeName(l.To),
					l.Multiple, want)
			}
		}
		for _, bad := range []float64{0, -1, 1 << 21} {
			if _, err := g.Uplinks(bad); err == nil {
				t.Errorf("%s: uplinks of %v are no error", c.spec, bad)
			}
		}
	}
	star, err := Parse("star:8")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := star.Uplinks(1); err == nil {
		t.Error("a star has uplinks")
	}
}
