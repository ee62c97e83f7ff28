//go:build !linux

package ip

import (
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/allcast/allcast/internal/fabric"
)

// Poller does not exist here: Go's own poller does the work.
type Poller struct {
	fabric.Poller
	fabric.FDPoller
}

// NewPoller fails.
func NewPoller() (*Poller, error) { return nil, errors.ErrUnsupported }

func (t *TCP) poll(*peerIn, *net.TCPConn) error { return errors.ErrUnsupported }

// tcpUserTimeout does nothing: heartbeats and the write deadline must do.
func tcpUserTimeout(*net.TCPConn, time.Duration) error { return nil }

// tcpLatePort does nothing: each connection has a port of its own.
func tcpLatePort(string, string, syscall.RawConn) error { return nil }

// openMulticast opens plain sockets.
func openMulticast(p *mcastPlan) (*Multicast, error) { return openPortable(p) }

func udpAdvice(error) string { return "" }

// mcastOnlyJoined does nothing: only on Linux does a socket receive groups that other sockets joined.
func mcastOnlyJoined(*net.UDPConn, bool) {}
