package lab

// Counters are the counters of all switch ports.
//
// The kernel counts bytes with link-layer headers, but a super-packet has one set of headers
// until it is segmented. Multicast bytes are the contents of the datagrams: our headers are
// included, the kernel's are not. That count does not depend on where super-packets are
// segmented.
type Counters struct {
	Topology       string     `json:"topology"`
	Hosts          int        `json:"hosts"`
	Switches       int        `json:"switches"`
	LinkBytes      uint64     `json:"link_bytes"`       // sum over all link directions
	McastLinkBytes uint64     `json:"mcast_link_bytes"` // multicast part of LinkBytes
	Lost           uint64     `json:"lost_packets"`     // dropped by the configured loss
	Dropped        uint64     `json:"dropped_packets"`  // dropped by full queues
	Ports          []Counting `json:"ports"`

	Oversubscribe float64 `json:"oversubscribe,omitempty"` // 0 without oversubscription
	Placement     []int   `json:"placement,omitempty"`     // host of each rank; nil if they are in order
	// BackgroundBytes is what the flows of other jobs have sent, without headers. Ports count these bytes as well, in
	// Rx and Tx of each link that they cross.
	BackgroundBytes uint64 `json:"background_bytes,omitempty"`

	// Sums of another command in the same lab; 0 without one.
	BaselineLinkBytes      uint64 `json:"baseline_link_bytes,omitempty"`
	BaselineMcastLinkBytes uint64 `json:"baseline_mcast_link_bytes,omitempty"`
}

// Counting is the counters of one switch port.
type Counting struct {
	Switch    string `json:"switch"`
	Port      string `json:"port"`
	Rx        uint64 `json:"rx"`
	Tx        uint64 `json:"tx"`
	RxPackets uint64 `json:"rx_packets"`
	TxPackets uint64 `json:"tx_packets"`
	McastRx   uint64 `json:"mcast_rx"`
	McastTx   uint64 `json:"mcast_tx"`

	once bool // whether no other port counts the same cable
}

// total sums over all links. A cable between switches counts at its lower end.
func (c *Counters) total() {
	c.LinkBytes, c.McastLinkBytes = 0, 0
	for _, p := range c.Ports {
		if p.once {
			c.LinkBytes += p.Rx + p.Tx
			c.McastLinkBytes += p.McastRx + p.McastTx
		}
	}
}

// Sub returns the difference to earlier counters of the same lab.
func (c *Counters) Sub(before *Counters) *Counters {
	d := *c
	d.Lost, d.Dropped = c.Lost-before.Lost, c.Dropped-before.Dropped
	d.BackgroundBytes = c.BackgroundBytes - before.BackgroundBytes
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

// newCounters lists all ports of all switches, with counters of 0.
func (p *Plan) newCounters() *Counters {
	c := &Counters{
		Topology: p.Graph.Name, Hosts: p.Graph.Hosts, Switches: p.Graph.Switches(), Placement: p.Config.Placement,
	}
	if p.Config.Oversubscribe > 1 {
		c.Oversubscribe = p.Config.Oversubscribe
	}
	for _, n := range p.switches() {
		for _, port := range n.Ports {
			once := port.Up || p.Graph.IsHost(port.Peer)
			c.Ports = append(c.Ports, Counting{Switch: n.Name, Port: port.Name, once: once})
		}
	}
	return c
}
