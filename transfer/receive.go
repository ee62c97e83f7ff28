package transfer

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// ErrLost means that the other side was lost, or has given this side up.
var ErrLost = errors.New("connection lost")

// receiver is one call of Receive.
type receiver struct {
	o      ReceiveOptions
	t      target
	start  time.Time
	events sync.Mutex

	files    int
	size     int64
	resumed  int64
	received atomic.Int64 // bytes of broadcasts
	stored   atomic.Int64 // bytes of segments
}

// Receive gets files from a sender. It returns nil only if everything is in place, verified and flushed. After any
// other end, a further call resumes: it does not receive verified data again.
func Receive(ctx context.Context, o ReceiveOptions) (*Result, error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	r := &receiver{o: o, start: time.Now()}
	if o.Stdout != nil {
		var id [16]byte
		_, _ = rand.Read(id[:]) // a failure would end the process
		r.t = &writerTarget{w: o.Stdout, name: hex.EncodeToString(id[:]), limit: o.MaxLag, held: map[int][]byte{}}
	} else {
		t, err := openDir(o.Dir, o.Verify)
		if err != nil {
			return nil, err
		}
		r.t = t
	}
	if o.wrap != nil {
		r.t = o.wrap(r.t)
	}
	err := r.run(ctx)
	err = errors.Join(err, r.t.close())
	res := &Result{
		Files: r.files, Bytes: r.size, Received: r.received.Load(), Resumed: r.resumed,
		Seconds: time.Since(r.start).Seconds(),
	}
	return res, err
}

// run connects, and connects again after the sender was lost.
func (r *receiver) run(ctx context.Context) error {
	since := time.Now() // of the last connection
	var last error
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		c, err := r.connect(ctx)
		if err == nil {
			r.event(Event{Event: EventConnected, Address: c.conn.RemoteAddr().String()})
			before, began := r.received.Load(), time.Now()
			err = newSession(ctx, r, c).run()
			if err == nil {
				r.event(Event{Event: EventComplete, Files: r.files, Bytes: r.stored.Load(), Total: r.size, Resumed: r.resumed})
				return nil
			}
			if r.worked(before, time.Since(began)) {
				since, wait = time.Now(), 50*time.Millisecond
			}
			r.event(Event{Event: EventLost, Reason: err.Error()})
		}
		if !errors.Is(err, ErrLost) {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		last = err
		if r.o.Retry < 0 || time.Since(since) > r.o.Retry {
			return last
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// worked reports whether a connection was of use: data arrived, or it lasted longer than a silent one would.
func (r *receiver) worked(before int64, lasted time.Duration) bool {
	return r.received.Load() > before || lasted > r.o.Timeout
}

// connect returns an authenticated connection. An error that matches ErrLost may pass.
func (r *receiver) connect(ctx context.Context) (*control, error) {
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", r.o.From)
	if err != nil {
		return nil, fmt.Errorf("%w: cannot reach the sender: %w", ErrLost, err)
	}
	if r.o.Key == nil && !r.o.Insecure && !isLoopback(conn.RemoteAddr()) {
		_ = conn.Close()
		return nil, fmt.Errorf("%w: no key, and the sender at %s is another machine: give both sides the same key, or "+
			"trust everybody on the network (Insecure)", ErrInput, conn.RemoteAddr())
	}
	_ = conn.SetDeadline(time.Now().Add(r.o.Timeout))
	secured, err := authReceiver(conn, r.o.Key, r.o.Key != nil && !r.o.NoEncrypt)
	if err != nil {
		_ = conn.Close()
		if errors.Is(err, ErrKey) || errors.Is(err, errStranger) {
			return nil, err
		}
		return nil, fmt.Errorf("%w: the sender at %s does not answer: %w", ErrLost, r.o.From, err)
	}
	_ = conn.SetDeadline(time.Time{})
	return newControl(secured, r.o.Timeout), nil
}

func (r *receiver) event(e Event) {
	if r.o.Events == nil {
		return
	}
	r.events.Lock()
	defer r.events.Unlock()
	e.Seconds, e.Schema = time.Since(r.start).Seconds(), schema
	r.o.Events(e)
}
