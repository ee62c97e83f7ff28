//go:build verbs

package verbs

import (
	"errors"
	"fmt"
	"syscall"
)

// Errors that callers compare with errors.Is.
var (
	ErrNoDevice = errors.New("no verbs device")
	ErrPort     = errors.New("the port cannot be used")
)

// A Status is the completion status of a work request (enum ibv_wc_status).
type Status uint32

// The statuses with a meaning for this package.
const (
	StatusSuccess Status = 0
	StatusFlush   Status = 5
)

var statusNames = [...]string{
	"SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_EEC_OP_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR", "MW_BIND_ERR",
	"BAD_RESP_ERR", "LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR", "REM_OP_ERR",
	"RETRY_EXC_ERR: the peer does not answer", "RNR_RETRY_EXC_ERR: the peer takes nothing", "LOC_RDD_VIOL_ERR",
	"REM_INV_RD_REQ_ERR", "REM_ABORT_ERR", "INV_EECN_ERR", "INV_EEC_STATE_ERR", "FATAL_ERR", "RESP_TIMEOUT_ERR",
	"GENERAL_ERR", "TM_ERR", "TM_RNDV_INCOMPLETE",
}

func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return fmt.Sprintf("status %d", uint32(s))
}

// An Error is the failure of a verb or of a work request.
type Error struct {
	Op     string        // attempted operation
	Device string        // name:port
	QP     uint32        // 0: none
	Peer   int           // world rank, -1: none
	Status Status        // of a completion
	Vendor uint32        // vendor's code of a completion
	Errno  syscall.Errno // of a call
}

func (e *Error) Error() string {
	s := "verbs: " + e.Device
	if e.QP != 0 {
		s += fmt.Sprintf(": QP %#x", e.QP)
		if e.Peer >= 0 {
			s += fmt.Sprintf(" to rank %d", e.Peer)
		}
	}
	s += ": " + e.Op
	if e.Status != StatusSuccess {
		s += ": " + e.Status.String()
		if e.Vendor != 0 {
			s += fmt.Sprintf(" (vendor's %#x)", e.Vendor)
		}
	}
	if e.Errno != 0 {
		s += ": " + e.Errno.Error()
	}
	return s
}

// Unwrap makes errors.Is find the errno.
func (e *Error) Unwrap() error {
	if e.Errno != 0 {
		return e.Errno
	}
	return nil
}

// failed is the error of a call that returned -errno.
func (d *Device) failed(op string, rc int) *Error {
	return &Error{Op: op, Device: d.String(), Peer: -1, Errno: syscall.Errno(-rc)}
}

// errno is the error of a call that set errno.
func (d *Device) errno(op string, err error) error {
	e := d.failed(op, -int(syscall.EIO))
	errors.As(err, &e.Errno)
	return e
}

// on adds the queue pair, and the rank of its peer; -1: it has none.
func (e *Error) on(qp uint32, peer int) *Error {
	e.QP, e.Peer = qp, peer
	return e
}

// with adds the status of a completion.
func (e *Error) with(c *completion) *Error {
	e.Status, e.Vendor = Status(c.status), uint32(c.vendor)
	return e
}
