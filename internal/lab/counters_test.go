package lab

import "testing"

// What every port counts once, with the cables between switches seen from both ends.
func TestCounters(t *testing.T) {
	p := newPlan(t, "fat-tree:4,2,2")
	before, after := p.newCounters(), p.newCounters()
	for i := range after.Ports {
		after.Ports[i].Rx, after.Ports[i].Tx, after.Ports[i].McastRx, after.Ports[i].McastTx = 10, 10, 1, 1
		before.Ports[i].Rx = 3
	}
	d := after.Sub(before)
	if cables := uint64(4 + 4); d.LinkBytes != cables*17 || d.McastLinkBytes != cables*2 {
		t.Errorf("%d and %d bytes on the links, want %d and %d", d.LinkBytes, d.McastLinkBytes, cables*17, cables*2)
	}
	if d.Hosts != 4 || d.Switches != 4 || len(d.Ports) != 2*4+2*2 || d.Topology != "fat-tree:4,2,2" {
		t.Errorf("%+v", d)
	}
}
