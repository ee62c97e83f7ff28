//go:build !unix

package ip

import "net"

// peerDirect is nothing here: the writer writes.
type peerDirect struct{}

const peerGathers = false

func (d *peerDirect) send(*net.TCPConn, []byte, []byte) int { return 0 }
