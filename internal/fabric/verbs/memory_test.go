//go:build verbs

package verbs

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/fabric"
)

// fakeDevice counts registered regions, and deregistrations after the device was closed.
type fakeDevice struct {
	live   atomic.Int64
	closed atomic.Bool
	late   atomic.Int64
}

func (f *fakeDevice) memory() *memory {
	return &memory{pin: f.pin, dereg: f.dereg, blocks: map[uint64]*region{}}
}

func (f *fakeDevice) pin(b []byte, _ bool) (*region, error) {
	f.touch(1)
	r := &region{addr: address(b), size: uint64(len(b))}
	fill(&r.mr)
	return r, nil
}

func (f *fakeDevice) dereg(*region) { f.touch(-1) }

func (f *fakeDevice) touch(n int64) {
	f.live.Add(n)
	if f.closed.Load() {
		f.late.Add(1)
	}
}

// fill allocates a value of a type that this file cannot name.
func fill[T any](p **T) { *p = new(T) }

// close closes the memory, and then the device.
func (f *fakeDevice) close(m *memory) {
	m.close()
	f.late.Add(f.live.Load())
	f.closed.Store(true)
}

// Blocks that are freed while the device is being closed are deregistered before the device is closed.
func TestFreeWhileClosing(t *testing.T) {
	for range 20 {
		var dev fakeDevice
		m := dev.memory()
		var blocks [8][]byte
		for i := range blocks {
			var err error
			if blocks[i], err = m.Alloc(1); err != nil {
				t.Fatal(err)
			}
		}
		// All calls wait for the lock, and then take it in order: first close, which takes it twice. A
		// starving waiter makes the mutex hand over in order.
		const queued = 2 * time.Millisecond
		m.mu.Lock()
		var wg sync.WaitGroup
		wg.Go(func() { dev.close(m) })
		time.Sleep(queued)
		for _, b := range blocks {
			wg.Go(func() {
				if err := m.Free(b); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(queued)
		m.mu.Unlock()
		m.mu.Lock()
		time.Sleep(queued)
		m.mu.Unlock()
		wg.Wait()
		if live, late := dev.live.Load(), dev.late.Load(); live != 0 || late != 0 {
			t.Fatalf("%d blocks stay registered, and %d were deregistered too late", live, late)
		}
	}
}

// Alloc fails while the device is being closed, and afterwards. Nothing stays registered.
func TestAllocWhileClosing(t *testing.T) {
	var dev fakeDevice
	m := dev.memory()
	registering, open := make(chan struct{}), make(chan struct{})
	m.pin = func(b []byte, remote bool) (*region, error) {
		close(registering)
		<-open
		return dev.pin(b, remote)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := m.Alloc(100); !errors.Is(err, fabric.ErrClosed) {
			t.Errorf("Alloc while the device is being closed: %v", err)
		}
	})
	<-registering
	wg.Go(func() { dev.close(m) })
	for closing := false; !closing; {
		m.mu.Lock()
		closing = m.closed
		m.mu.Unlock()
	}
	close(open)
	wg.Wait()
	if _, err := m.Alloc(100); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("Alloc after the device was closed: %v", err)
	}
	if live, late := dev.live.Load(), dev.late.Load(); live != 0 || late != 0 || len(m.regions) != 0 {
		t.Errorf("%d blocks stay registered, and %d were deregistered too late", live, late)
	}
}
