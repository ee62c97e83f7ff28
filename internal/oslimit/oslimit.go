// Package oslimit tells the errors of this process's own limits from those of its peers.
package oslimit

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// An Error says that this process or its machine has run out of something. No peer is to blame, and waiting for one
// does not help.
type Error struct {
	Err    error
	advice string // which limit, and how to raise it
}

func (e *Error) Error() string { return e.Err.Error() + ": " + e.advice }

// Unwrap returns the error that the limit has caused.
func (e *Error) Unwrap() error { return e.Err }

// Exhausted returns an error that names the limit which an error of opening or accepting a connection has hit, or nil
// if a limit is not the reason.
func Exhausted(err error) *Error {
	var number syscall.Errno
	if !errors.As(err, &number) {
		return nil
	}
	var advice string
	switch number {
	case syscall.EMFILE:
		advice = "raise this process's limit of open files with ulimit -n"
		if n, known := OpenFiles(); known {
			advice = fmt.Sprintf("RLIMIT_NOFILE is %d: raise it with ulimit -n", n)
		}
	case syscall.ENFILE:
		advice = "this machine's limit of open files" + setting("fs.file-max") + ": raise it with sysctl"
	case syscall.ENOMEM, syscall.ENOBUFS:
		advice = "this machine or container has no memory for another socket: raise its limit of memory, or " +
			"net.ipv4.tcp_mem with sysctl"
	default:
		return nil
	}
	return &Error{err, advice}
}

// ExhaustedDial is Exhausted for a connection from one address to another, which also needs a port.
func ExhaustedDial(err error) *Error {
	if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EADDRINUSE) {
		return &Error{err, "either the address is not one of this machine's any more, or no port is free" +
			setting("net.ipv4.ip_local_port_range") + ": widen the range with sysctl, or run fewer ranks per machine"}
	}
	return Exhausted(err)
}

// setting describes a setting of the kernel, if it can be read.
func setting(name string) string {
	b, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" (%s is %s)", name, strings.Join(strings.Fields(string(b)), " "))
}
