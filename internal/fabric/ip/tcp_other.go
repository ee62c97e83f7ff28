//go:build !linux

package ip

import (
	"net"
	"time"
)

// tcpUserTimeout does nothing: heartbeats and the write deadline must do.
func tcpUserTimeout(*net.TCPConn, time.Duration) error { return nil }
