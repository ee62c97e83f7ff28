//go:build !linux

package doctor

import "net"

// dontFragment does nothing: only Linux has an option for it that ignores what the kernel knows of the path.
func dontFragment(*net.UDPConn) {}

func enlarge(conn *net.UDPConn, size int) { _ = conn.SetReadBuffer(size) }

// drops is unknown here.
func (*prober) drops() int { return 0 }
