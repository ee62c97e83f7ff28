package oslimit

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
)

// An error of a limit names the limit and how to raise it. Errors that peers cause are none.
func TestExhausted(t *testing.T) {
	wrap := func(number syscall.Errno) error {
		return fmt.Errorf("connect: %w", &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", number)})
	}
	for number, want := range map[syscall.Errno]string{
		syscall.EMFILE: "ulimit -n", syscall.ENFILE: "open files", syscall.ENOMEM: "memory", syscall.ENOBUFS: "memory",
	} {
		for _, f := range []func(error) *Error{Exhausted, ExhaustedDial} {
			if e := f(wrap(number)); e == nil || !strings.Contains(e.Error(), want) || !errors.Is(e, number) {
				t.Errorf("%v: %v", number, e)
			}
		}
	}
	for _, number := range []syscall.Errno{syscall.EADDRNOTAVAIL, syscall.EADDRINUSE} {
		if e := ExhaustedDial(wrap(number)); e == nil || !strings.Contains(e.Error(), "no port is free") {
			t.Errorf("%v: %v", number, e)
		}
		if e := Exhausted(wrap(number)); e != nil {
			t.Error(e)
		}
	}
	if n, known := OpenFiles(); known && !strings.Contains(Exhausted(syscall.EMFILE).Error(), fmt.Sprintf(" is %d:", n)) {
		t.Error(Exhausted(syscall.EMFILE))
	}
	for _, err := range []error{
		nil, io.EOF, wrap(syscall.ECONNREFUSED), wrap(syscall.ECONNABORTED), wrap(syscall.ECONNRESET),
	} {
		if e := ExhaustedDial(err); e != nil {
			t.Error(e)
		}
	}
}
