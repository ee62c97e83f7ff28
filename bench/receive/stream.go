//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// streamPort is a port of rank 0. Its host has its own network namespace, so no other program uses it.
const streamPort = "7000"

// stream is a rank of a TCP stream from rank 0 to rank 1, with the bytes and the memory of the Broadcasts.
func stream(s *spec, me int) error {
	at := net.JoinHostPort(os.Getenv("MASTER_ADDR"), streamPort)
	if me == 0 {
		return sendStream(s, at)
	}
	c, err := dial(at)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	return receiveStream(s, c)
}

// dial waits until rank 0 listens.
func dial(at string) (c net.Conn, err error) {
	const patience = 10 * time.Second
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(10 * time.Millisecond) {
		if c, err = net.Dial("tcp", at); err == nil {
			return c, nil
		}
	}
	return nil, err
}

// sendStream sends two texts to warm up, then those of the measurement. It prints the receiver's answer.
func sendStream(s *spec, at string) error {
	l, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	buf := make([]byte, s.Bytes)
	for i := range buf {
		buf[i] = 0 // touch the pages before the measurement
	}
	for i := -warmTexts; i < s.Iters; i++ {
		buf[0] = byte(i)
		if _, err := c.Write(buf); err != nil {
			return err
		}
	}
	_, err = io.Copy(os.Stdout, c)
	return err
}

// warmTexts is the number of texts before those that are measured.
const warmTexts = 2

func receiveStream(s *spec, c net.Conn) error {
	buf := bytes.Repeat([]byte{1}, s.Bytes)
	read := func(n int) error {
		for range n {
			if _, err := io.ReadFull(c, buf); err != nil {
				return err
			}
		}
		return nil
	}
	if err := read(warmTexts); err != nil {
		return err
	}
	before := streamUsage()
	if err := read(s.Iters); err != nil {
		return err
	}
	r := streamUsage()
	for i := range r {
		r[i] -= before[i]
	}
	if buf[0] != byte(s.Iters-1) || bytes.Count(buf[1:], []byte{0}) != len(buf)-1 {
		return errors.New("the last text has wrong bytes")
	}
	return json.NewEncoder(c).Encode(r)
}

// streamUsage returns the measurements so far. A stream has neither chunks nor threads of its own.
func streamUsage() result {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail
	return result{
		wall: time.Now().UnixNano(), user: u.Utime.Nano(), system: u.Stime.Nano(), softirq: softirqTime(),
	}
}
