//go:build !unix

package ip

import "net"

// peerDirect writes nothing on this system: the writer sends all frames.
type peerDirect struct{}

const peerGathers = false

func (d *peerDirect) send(*net.TCPConn, []byte, []byte) int { return 0 }
