//go:build !unix

package ip

import "net"

// mcastReadBuffer cannot read it back here.
func mcastReadBuffer(_ *net.UDPConn, asked int) int { return asked }

// mcastNoBuffers cannot tell here.
func mcastNoBuffers(error) bool { return false }

// mcastReady cannot tell here: a Receive takes one datagram.
func mcastReady(*net.UDPConn) func() bool { return func() bool { return false } }
