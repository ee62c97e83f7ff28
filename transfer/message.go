package transfer

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/allcast/allcast"
)

// Kinds of control messages.
const (
	// From the receiver.
	msgHello    = "hello"    // first message
	msgClaims   = "claims"   // hashes of segments that are on disk; Last ends the list
	msgReady    = "ready"    // waits for data
	msgStoreSet = "set"      // calls of Options.Store
	msgStoreGet = "get"      //
	msgJoined   = "joined"   // joined a group, or failed to
	msgStored   = "stored"   // segment verified and written
	msgMissed   = "missed"   // segment did not arrive
	msgComplete = "complete" // everything is in place
	msgFail     = "fail"     // this receiver gives up

	// From the sender.
	msgWelcome  = "welcome"  // parameters of the transfer
	msgManifest = "manifest" // part of the manifest; Last ends it
	msgHave     = "have"     // segments that the receiver need not receive
	msgValue    = "value"    // answer to get
	msgJoin     = "join"     // join a group
	msgCast     = "cast"     // a segment is about to be broadcast
	msgEnd      = "end"      // the group has ended
	msgFinish   = "finish"   // the receiver has everything
	msgBye      = "bye"      // the sender gives this receiver up, with Error, or is done

	// From both.
	msgPing = "ping"
)

// message is a control message. Each kind uses some of the fields.
type message struct {
	Kind string `json:"kind"`

	Version string `json:"version,omitempty"` // hello
	ID      string `json:"id,omitempty"`      // hello: identity that survives a restart
	Name    string `json:"name,omitempty"`    // hello
	Ordered bool   `json:"ordered,omitempty"` // hello: needs segments in order

	Timeout time.Duration `json:"timeout,omitempty"` // welcome
	Window  int           `json:"window,omitempty"`  // welcome: broadcasts in flight
	Lag     int           `json:"lag,omitempty"`     // welcome: segments that may wait for the disk

	Seq   uint64 `json:"seq,omitempty"`   // get, value: number of the call
	Key   string `json:"key,omitempty"`   // set, get
	Value []byte `json:"value,omitempty"` // set, value, claims, manifest, have; join: key of the group
	Last  bool   `json:"last,omitempty"`  // claims, manifest

	Group     int    `json:"group,omitempty"`
	Rank      int    `json:"rank,omitempty"` // join
	Size      int    `json:"size,omitempty"` // join
	Secure    bool   `json:"secure,omitempty"`
	Interface string `json:"interface,omitempty"` // join, for receivers on the sender's host

	Segment int    `json:"segment,omitempty"`
	Hash    []byte `json:"hash,omitempty"`
	Length  int64  `json:"length,omitempty"` // cast: bytes of the segment; finish: bytes of all
	Wire    int64  `json:"wire,omitempty"`   // cast: bytes that are broadcast, compressed if shorter than Length
	Algo    string `json:"algo,omitempty"`   // cast
	Discard bool   `json:"discard,omitempty"`

	Bytes int64  `json:"bytes,omitempty"` // complete: bytes received
	Error string `json:"error,omitempty"`
	Wrong bool   `json:"wrong,omitempty"` // fail, bye: the data was wrong
	Again bool   `json:"again,omitempty"` // bye: the receiver may come back
}

// maxMessage is the maximum length of an encoded message, and maxPart that of the bytes in one.
const (
	maxMessage = 1 << 20
	maxPart    = 256 << 10
)

// control is an authenticated connection. Writes may be concurrent.
type control struct {
	conn net.Conn
	in   *bufio.Reader
	idle time.Duration // silence after which the other side counts as lost

	mu  sync.Mutex
	out *bufio.Writer
}

func newControl(c net.Conn, idle time.Duration) *control {
	return &control{conn: c, in: bufio.NewReaderSize(c, 64<<10), out: bufio.NewWriterSize(c, 64<<10), idle: idle}
}

// setIdle changes the silence that counts as a loss.
func (c *control) setIdle(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = d
}

var errLong = fmt.Errorf("a message is longer than %d bytes", maxMessage)

func (c *control) send(ms ...message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.conn.SetWriteDeadline(time.Now().Add(c.idle))
	for _, m := range ms {
		b, err := json.Marshal(m)
		if err != nil {
			return err
		}
		if len(b) > maxMessage {
			return errLong
		}
		var head [4]byte
		binary.LittleEndian.PutUint32(head[:], uint32(len(b)))
		_, _ = c.out.Write(head[:]) // Flush returns the error
		_, _ = c.out.Write(b)
	}
	return c.out.Flush()
}

func (c *control) receive() (message, error) {
	_ = c.conn.SetReadDeadline(time.Now().Add(c.idle))
	return readMessage(c.in)
}

// readMessage reads one message.
func readMessage(r io.Reader) (m message, err error) {
	var head [4]byte
	if _, err = io.ReadFull(r, head[:]); err != nil {
		return m, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > maxMessage {
		return m, errLong
	}
	b := make([]byte, n)
	if _, err = io.ReadFull(r, b); err != nil {
		return m, err
	}
	if err = json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("a message is not valid: %w", err)
	}
	switch {
	case m.Kind == "":
		return m, errors.New("a message has no kind")
	case m.Segment < 0 || m.Segment > maxSegments || m.Length < 0 || m.Wire < 0 || m.Group < 0 || m.Rank < 0:
		return m, errors.New("a message has a number that is out of range")
	}
	return m, nil
}

// ping keeps the connection alive until stop is closed.
func (c *control) ping(stop <-chan struct{}) {
	t := time.NewTicker(c.idle / 4)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if c.send(message{Kind: msgPing}) != nil {
				return
			}
		case <-stop:
			return
		}
	}
}

// version is that of the software and the protocol.
const version = allcast.Version
