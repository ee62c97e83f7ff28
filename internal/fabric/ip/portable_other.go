//go:build !unix

package ip

import "net"

// mcastReadBuffer returns the requested size, since this system cannot read it back.
func mcastReadBuffer(_ *net.UDPConn, asked int) int { return asked }

// mcastNoBuffers is false, since this system does not report full device queues.
func mcastNoBuffers(error) bool { return false }

// mcastReady is false, since this system cannot tell. A Receive then takes one datagram.
func mcastReady(*net.UDPConn) func() bool { return func() bool { return false } }

// peerDirect writes nothing on this system: the writer sends all frames.
type peerDirect struct{}

const peerGathers = false

func (d *peerDirect) send(*net.TCPConn, []byte, []byte) int { return 0 }
