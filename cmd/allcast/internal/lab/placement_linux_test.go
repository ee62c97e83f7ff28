package lab

import (
	"strings"
	"testing"

	"github.com/allcast/allcast/internal/topology"
)

// Ranks at random on an oversubscribed network with traffic of other jobs. Multicast comes from the host of the root,
// and every datagram crosses each cable of its tree once.
func TestPlacement(t *testing.T) {
	const spec, root, payload = "fat-tree:8,4,2", 2, 3 * 256 << 10
	perf, c := runPerf(t, "--topology "+spec+" --rate 500mbit --oversubscribe 2 --placement random:3 --background 4:20%",
		"perf broadcast --json --algo mcast --root 2 -b 256K -n 3 -w 0")
	if perf["wrong"] != 0.0 || perf["subgroups"] != 2.0 || c.Oversubscribe != 2 || c.BackgroundBytes == 0 {
		t.Errorf("%v, oversubscribed %v, %d bytes of other jobs", perf, c.Oversubscribe, c.BackgroundBytes)
	}
	g, err := topology.Parse(spec)
	if err == nil {
		g, err = g.Place(c.Placement)
	}
	if err != nil {
		t.Fatal(err)
	}

	sent := map[string]uint64{} // by multicast: by each host, and by all hosts of a leaf
	var total uint64
	for _, p := range c.Ports {
		if strings.HasPrefix(p.Port, "host") {
			sent[p.Port] = p.McastRx
			sent[p.Switch] += p.McastRx
			total += p.McastRx
		}
	}
	if name := g.NodeName(root); sent[name] < payload || total-sent[name] > payload/2 { // other ranks only probe
		t.Errorf("rank %d on %s has sent %d bytes of %d, want %d", root, name, sent[name], total, payload)
	}
	// Links that other jobs fill may drop datagrams, which then cross fewer links.
	once := func(got, want uint64) bool { return got == want || got < want && perf["repaired_bytes"] != 0.0 }
	up, down := map[string]uint64{}, map[string]uint64{} // of each leaf
	for _, p := range c.Ports {
		switch {
		case strings.HasPrefix(p.Port, "host") && !once(p.McastTx, total-sent[p.Port]):
			t.Errorf("%s has received %d bytes, want %d", p.Port, p.McastTx, total-sent[p.Port])
		case strings.HasPrefix(p.Port, "spine"):
			up[p.Switch] += p.McastTx
			down[p.Switch] += p.McastRx
			if n := p.McastTx + p.McastRx; n < payload/3 { // halves differ by a chunk per operation
				t.Errorf("%d bytes between %s and %s, want about half of %d", n, p.Switch, p.Port, payload)
			}
		}
	}
	for leaf := range up {
		if !once(up[leaf], sent[leaf]) || !once(down[leaf], total-sent[leaf]) {
			t.Errorf("%s has sent %d bytes up and received %d, want %d and %d", leaf, up[leaf], down[leaf], sent[leaf],
				total-sent[leaf])
		}
	}
}
