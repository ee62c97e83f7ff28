package rendezvous

import "net"

// maxStrangers limits connections that have not said hello, besides one per rank. Another one evicts the one that is
// furthest from a hello. Silent connections therefore cannot keep ranks out, and an evicted rank dials again.
const maxStrangers = 256

// pending holds the connections of a gate that have not said hello.
type pending struct {
	all  map[net.Conn]*progress
	last uint64 // number of the last sign of progress
}

// progress is how far a connection has come.
type progress struct {
	proved bool   // whether the other side has the job's key
	last   uint64 // number of its last sign of progress
}

func (p *pending) add(conn net.Conn) {
	if p.all == nil {
		p.all = map[net.Conn]*progress{}
	}
	p.all[conn] = &progress{}
	p.progress(conn, false)
}

// remove returns false if the connection is not pending.
func (p *pending) remove(conn net.Conn) bool {
	known := p.all[conn] != nil
	delete(p.all, conn)
	return known
}

func (p *pending) progress(conn net.Conn, proved bool) {
	if x := p.all[conn]; x != nil {
		p.last++
		x.last, x.proved = p.last, x.proved || proved
	}
}

// least returns the connection that has been idle for the longest time, among those that have not proved the key if
// there are any. It returns nil without connections.
func (p *pending) least() (conn net.Conn) {
	var worst *progress
	for c, x := range p.all {
		if worst == nil || worst.proved && !x.proved || worst.proved == x.proved && x.last < worst.last {
			conn, worst = c, x
		}
	}
	return conn
}

// pendingConn records the progress of a pending connection.
type pendingConn struct {
	net.Conn
	gate *gate
}

func (c *pendingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.gate.progress(c.Conn, false)
	}
	return n, err
}
