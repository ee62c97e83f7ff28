//go:build !linux

package ip

import (
	"errors"
	"net"
)

func (t *TCP) poll(*peerIn, *net.TCPConn) error { return errors.ErrUnsupported }
