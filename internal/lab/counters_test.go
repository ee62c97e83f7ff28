package lab

import "testing"

// Totals count each cable once, although both ends of a cable between switches have a port.
func TestCounters(t *testing.T) {
	p := newPlan(t, "fat-tree:4,2,2")
	before, after := p.newCounters(), p.newCounters()
	for i := range after.Ports {
		after.Ports[i].Rx, after.Ports[i].Tx, after.Ports[i].McastRx, after.Ports[i].McastTx = 10, 10, 1, 1
		before.Ports[i].Rx = 3
	}
	d := after.Sub(before)
	if cables := uint64(4 + 4); d.LinkBytes != cables*17 || d.McastLinkBytes != cables*2 {
		t.Errorf("%d bytes on the links, %d of them multicast; want %d and %d",
			d.LinkBytes, d.McastLinkBytes, cables*17, cables*2)
	}
	if d.Hosts != 4 || d.Switches != 4 || len(d.Ports) != 2*4+2*2 || d.Topology != "fat-tree:4,2,2" {
		t.Errorf("%+v", d)
	}
}
