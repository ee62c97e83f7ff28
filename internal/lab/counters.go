package lab

// Counters are what the ports of all switches have counted.
//
// Bytes are the kernel's: link-layer headers included, but a super-packet, which
// travels as one until somebody cuts it up, has one set of headers. Multicast is
// counted by what the datagrams contain, our headers included and the kernel's not:
// that does not depend on who cuts super-packets up where.
type Counters struct {
	Topology       string     `json:"topology"`
	Hosts          int        `json:"hosts"`
	Switches       int        `json:"switches"`
	LinkBytes      uint64     `json:"link_bytes"`       // on all link directions, each once
	McastLinkBytes uint64     `json:"mcast_link_bytes"` // of these, multicast
	Lost           uint64     `json:"lost_packets"`     // that loss on request has dropped
	Dropped        uint64     `json:"dropped_packets"`  // that found a queue full
	Ports          []Counting `json:"ports"`
}

// Counting is what one port of a switch has counted.
type Counting struct {
	Switch    string `json:"switch"`
	Port      string `json:"port"`
	Rx        uint64 `json:"rx"`
	Tx        uint64 `json:"tx"`
	RxPackets uint64 `json:"rx_packets"`
	TxPackets uint64 `json:"tx_packets"`
	McastRx   uint64 `json:"mcast_rx"`
	McastTx   uint64 `json:"mcast_tx"`

	once bool // the other end of its cable is not a switch's, or is not counted
}

// total sums up what lies on the links. A cable between switches is counted at its
// lower end.
func (c *Counters) total() {
	c.LinkBytes, c.McastLinkBytes = 0, 0
	for _, p := range c.Ports {
		if p.once {
			c.LinkBytes += p.Rx + p.Tx
			c.McastLinkBytes += p.McastRx + p.McastTx
		}
	}
}

// Sub returns what has been counted since an earlier look at the same lab.
func (c *Counters) Sub(before *Counters) *Counters {
	d := *c
	d.Lost, d.Dropped = c.Lost-before.Lost, c.Dropped-before.Dropped
	d.Ports = make([]Counting, len(c.Ports))
	for i, p := range c.Ports {
		b := before.Ports[i]
		p.Rx, p.Tx = p.Rx-b.Rx, p.Tx-b.Tx
		p.RxPackets, p.TxPackets = p.RxPackets-b.RxPackets, p.TxPackets-b.TxPackets
		p.McastRx, p.McastTx = p.McastRx-b.McastRx, p.McastTx-b.McastTx
		d.Ports[i] = p
	}
	d.total()
	return &d
}

// newCounters lists all ports of all switches, with nothing counted.
func (p *Plan) newCounters() *Counters {
	c := &Counters{Topology: p.Graph.Name, Hosts: p.Graph.Hosts, Switches: p.Graph.Switches()}
	for n := p.Graph.Hosts; n < len(p.Nodes); n++ {
		for i := range p.Nodes[n].Ports {
			port := &p.Nodes[n].Ports[i]
			c.Ports = append(c.Ports, Counting{
				Switch: p.Nodes[n].Name, Port: port.Name,
				once: port.Up || p.Graph.IsHost(port.Peer),
			})
		}
	}
	return c
}
