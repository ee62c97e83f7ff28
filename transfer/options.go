package transfer

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"
)

// DefaultPort is the TCP port on which a sender listens by default.
const DefaultPort = 7800

// Default values of options.
const (
	DefaultMaxLag  = 64 << 20
	DefaultTimeout = 10 * time.Second
	DefaultSegment = 8 << 20
	DefaultRetry   = time.Minute
)

// SendOptions configure Send.
type SendOptions struct {
	// Paths are the files and directories to send. They appear in the target directories under their base names; the
	// contents of "." appear there directly.
	Paths []string
	// Stdin, instead of Paths, is a pipe to send. Receivers cannot join it late or resume.
	Stdin io.Reader
	// StdinName is the name of the file into which receivers write a pipe, by default "stdin".
	StdinName string
	// Include and Exclude are patterns of path.Match. A pattern without a slash applies to names, one with a slash to
	// paths in the target directory. Exclude also leaves out directories.
	Include, Exclude []string

	// Listen is the address for control connections, by default ":7800". Listener, if set, replaces it.
	Listen   string
	Listener net.Listener

	// To is the number of receivers to wait for (default 1, or any number if there is a Wait). Wait limits that time; the
	// transfer then starts with the receivers that are there, at least one. Receivers lists names or
	// addresses of receivers that must be there instead.
	To        int
	Wait      time.Duration
	Receivers []string
	// Linger is the time that Send waits, at the end, for receivers that were lost.
	Linger time.Duration

	// Key has at least 16 bytes, and is the same on all sides. Without one, anybody can receive. NoEncrypt sends the
	// data in the clear although there is a key.
	Key       []byte
	NoEncrypt bool
	// Insecure admits receivers on other machines although there is no key.
	Insecure bool

	// Rate limits the data that the sender sends, in bits per second; 0 means no limit.
	Rate float64
	// MaxLag is the number of bytes that a receiver may be behind its disk before the others continue without it
	// (default 64 MiB).
	MaxLag int64
	// Compress compresses segments with zstd where that makes them shorter.
	Compress bool
	// Segment is the length of segments in bytes (default 8 MiB, less at a low Rate).
	Segment int64
	// NoMulticast sends through a chain of receivers.
	NoMulticast bool

	// Timeout is the silence after which a receiver is lost (default 10 s). StallTimeout limits the time without
	// progress of a receiver that others do not wait for (default 60 s).
	Timeout, StallTimeout time.Duration

	// Events receives what happens, one call at a time.
	Events func(Event)
	// Logger receives messages of the groups. By default they are discarded.
	Logger *slog.Logger
}

// ReceiveOptions configure Receive.
type ReceiveOptions struct {
	// From is the host:port of the sender.
	From string
	// Dir is the target directory. Stdout, instead of Dir, receives one file or pipe.
	Dir    string
	Stdout io.Writer
	// Name is how the sender calls this receiver, by default the host name.
	Name string

	// Key and NoEncrypt are as those of the sender.
	Key       []byte
	NoEncrypt bool
	// Insecure accepts a sender on another machine although there is no key.
	Insecure bool

	// Verify reads all files again after they were flushed, and compares their hashes.
	Verify bool
	// MaxLag limits the bytes that wait for their turn on the way to Stdout (default 64 MiB).
	MaxLag int64
	// Retry is the time during which the receiver tries to reach the sender, at first and after it was lost (default
	// 1 min; negative: never again).
	Retry time.Duration
	// Timeout is the silence after which the sender is lost, until the sender sets its own.
	Timeout time.Duration

	Events func(Event)
	Logger *slog.Logger

	wrap func(target) target // tests inject faults
}

// Event is something that happened. Its fields are stable.
type Event struct {
	Event    string  `json:"event"` // see the Event constants
	Receiver string  `json:"receiver,omitempty"`
	Address  string  `json:"address,omitempty"`
	Files    int     `json:"files,omitempty"`
	Bytes    int64   `json:"bytes,omitempty"` // sent or stored so far
	Total    int64   `json:"total,omitempty"` // of the whole transfer
	Resumed  int64   `json:"resumed,omitempty"`
	Members  int     `json:"members,omitempty"`
	Algo     string  `json:"algo,omitempty"`
	Reason   string  `json:"reason,omitempty"`
	Seconds  float64 `json:"seconds"`
	Schema   int     `json:"schema"`
}

// Kinds of events.
const (
	EventListening = "listening" // the sender accepts receivers at Address
	EventReceiver  = "receiver"  // a receiver is ready; Resumed bytes need not be sent
	EventStart     = "start"     // the transfer starts
	EventGroup     = "group"     // a group of receivers was formed
	EventProgress  = "progress"  // Bytes of Total
	EventLagging   = "lagging"   // a receiver exceeded MaxLag, and catches up later
	EventLost      = "lost"      // a receiver was lost, or the sender
	EventComplete  = "complete"  // a receiver has everything
	EventConnected = "connected" // a receiver has reached the sender
)

const schema = 1

// Summary is the result of Send.
type Summary struct {
	Files     int              `json:"files"`
	Bytes     int64            `json:"bytes"`      // of the data
	SentBytes int64            `json:"sent_bytes"` // broadcast, each segment counted once per broadcast
	Seconds   float64          `json:"seconds"`
	Receivers []ReceiverResult `json:"receivers"`
}

// ReceiverResult is the outcome of one receiver.
type ReceiverResult struct {
	Name     string  `json:"name"`
	Address  string  `json:"address"`
	Complete bool    `json:"complete"`
	Bytes    int64   `json:"bytes"`   // received by it, as far as it reported
	Resumed  int64   `json:"resumed"` // bytes that it had before
	Seconds  float64 `json:"seconds"` // from the start until it was complete or lost
	Error    string  `json:"error,omitempty"`
}

// Result is the result of Receive.
type Result struct {
	Files    int     `json:"files"`
	Bytes    int64   `json:"bytes"`    // of the data
	Received int64   `json:"received"` // bytes received in this call
	Resumed  int64   `json:"resumed"`  // bytes that were there before
	Seconds  float64 `json:"seconds"`
}

func (o *SendOptions) defaults() error {
	if o.To <= 0 {
		if o.To = len(o.Receivers); o.To == 0 && o.Wait <= 0 {
			o.To = 1
		}
	}
	if o.Listen == "" {
		o.Listen = fmt.Sprintf(":%d", DefaultPort)
	}
	if o.StdinName == "" {
		o.StdinName = "stdin"
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.StallTimeout <= 0 {
		o.StallTimeout = time.Minute
	}
	if o.MaxLag <= 0 {
		o.MaxLag = DefaultMaxLag
	}
	if o.Segment == 0 {
		o.Segment = DefaultSegment
		for o.Rate > 0 && o.Segment > 256<<10 && float64(8*o.Segment) > o.Rate/5 {
			o.Segment /= 2 // about a fifth of a second, so that the rate is smooth
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case o.Key != nil && len(o.Key) < 16:
		return fmt.Errorf("%w: a key of %d bytes: want at least 16", ErrInput, len(o.Key))
	case o.Timeout < minTimeout || o.Timeout > maxTimeout:
		return fmt.Errorf("%w: a timeout of %v: want %v to %v", ErrInput, o.Timeout, minTimeout, maxTimeout)
	case o.Segment < minSegment || o.Segment > maxSegment:
		return fmt.Errorf("%w: segments of %d bytes: want %d to %d", ErrInput, o.Segment, minSegment, maxSegment)
	case o.Stdin != nil && len(o.Paths) > 0:
		return fmt.Errorf("%w: want paths or a pipe, not both", ErrInput)
	case o.Stdin == nil && len(o.Paths) == 0:
		return fmt.Errorf("%w: nothing to send", ErrInput)
	}
	return nil
}

func (o *ReceiveOptions) defaults() error {
	if o.Name == "" {
		o.Name, _ = os.Hostname()
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Retry == 0 {
		o.Retry = DefaultRetry
	}
	if o.MaxLag <= 0 {
		o.MaxLag = DefaultMaxLag
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case o.Key != nil && len(o.Key) < 16:
		return fmt.Errorf("%w: a key of %d bytes: want at least 16", ErrInput, len(o.Key))
	case (o.Dir == "") == (o.Stdout == nil):
		return fmt.Errorf("%w: want a directory or standard output", ErrInput)
	case o.From == "":
		return fmt.Errorf("%w: want the address of the sender", ErrInput)
	}
	return nil
}

// Plan describes what Send would transfer.
type Plan struct {
	Files   int   `json:"files"`
	Bytes   int64 `json:"bytes"` // of all files, with holes
	Data    int64 `json:"data"`  // to transfer
	Entries []PlanEntry
}

// PlanEntry is one entry of a Plan.
type PlanEntry struct {
	Path string `json:"path"`
	Type string `json:"type"` // file, directory, symlink or hardlink
	Size int64  `json:"size"`
}

// DryRun returns what Send would transfer, with the same checks.
func DryRun(_ context.Context, o SendOptions) (*Plan, error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	if o.Stdin != nil {
		return nil, fmt.Errorf("%w: a pipe has no plan", ErrInput)
	}
	w, err := walk(o.Paths, o.Include, o.Exclude)
	if err != nil {
		return nil, err
	}
	m, err := w.manifest(o.Segment)
	if err != nil {
		return nil, err
	}
	p := &Plan{Data: m.size}
	names := [kinds]string{"file", "directory", "symlink", "hardlink"}
	for i := range m.entries {
		e := &m.entries[i]
		p.Entries = append(p.Entries, PlanEntry{e.path, names[e.kind], e.size})
		if e.kind != kindDir {
			p.Files++
		}
		p.Bytes += e.size
	}
	return p, nil
}
