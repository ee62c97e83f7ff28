//go:build !unix

package ip

import "net"

// waiting reports true: this system does not tell whether a connection waits to be accepted.
func waiting(*net.TCPListener) bool { return true }
