//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/allcast/allcast"
)

// rankVariable marks a process that is a rank.
const rankVariable = "JOIN_RANK"

// joined is what a rank reports once it has joined.
type joined struct {
	Rank           int
	At             int64         // time at which Join returned, in ns since 1970
	Took           time.Duration // by Join
	CPU            time.Duration // by the process so far
	Sent, Received uint64        // to meet the others
	Memory         int64         // resident set, in bytes
	Files          int           // open descriptors
}

// rank joins, reports, and stays until its standard input ends.
func rank() error {
	start := time.Now()
	c, err := allcast.Join(context.Background(), allcast.Options{NoCalibration: true})
	if err != nil {
		return err
	}
	now := time.Now()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return err
	}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	memory, err := resident()
	if err != nil {
		return err
	}
	s := c.Stats()
	report := joined{
		Rank: c.Rank(), At: now.UnixNano(), Took: now.Sub(start), CPU: time.Duration(u.Utime.Nano() + u.Stime.Nano()),
		Sent: s.JoinSent, Received: s.JoinReceived, Memory: memory, Files: len(files),
	}
	if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return c.Close()
}

// resident returns the memory of this process. The maximum in Rusage would be that of the process that started it.
func resident() (bytes int64, err error) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	var all, pages int64
	_, err = fmt.Sscan(string(text), &all, &pages)
	return pages * int64(os.Getpagesize()), err
}
