//go:build linux && cgo

package main

// #include "internal.h"
import "C"

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"github.com/allcast/allcast"
)

// comm is a communicator with a handle.
type comm struct {
	*allcast.Comm
	world *allcast.Comm // the communicator that Join returned
}

var comms = newTable[*comm](commKind)

func addWorld(c *allcast.Comm) C.allcast_comm { return C.allcast_comm(comms.add(&comm{c, c})) }

// commOf returns the communicator of a handle.
func commOf(handle C.allcast_comm) (*comm, error) {
	c, ok := comms.get(uint64(handle))
	switch {
	case ok:
		return c, nil
	case comms.used(uint64(handle)):
		return nil, fmt.Errorf("allcast: %w", allcast.ErrClosed)
	}
	return nil, invalid("%#x is no handle of a communicator", uint64(handle))
}

// onComm calls do with a communicator, and reports the error.
func onComm(f *C.struct_failure, handle C.allcast_comm, do func(*comm) error) C.int {
	c, err := commOf(handle)
	if err == nil {
		err = do(c)
	}
	return report(f, err)
}

// output stores a result, or returns an error if it has no place.
func output[T any](name string, p *T, value T) error {
	if err := checkOut(name, p); err != nil {
		return err
	}
	*p = value
	return nil
}

//export goRank
func goRank(f *C.struct_failure, handle C.allcast_comm, rank *C.int) C.int {
	return onComm(f, handle, func(c *comm) error { return output("rank", rank, C.int(c.Rank())) })
}

//export goSize
func goSize(f *C.struct_failure, handle C.allcast_comm, size *C.int) C.int {
	return onComm(f, handle, func(c *comm) error { return output("size", size, C.int(c.Size())) })
}

//export goWorldRank
func goWorldRank(f *C.struct_failure, handle C.allcast_comm, rank C.int, world *C.int) C.int {
	return onComm(f, handle, func(c *comm) error {
		w := c.WorldRank(int(rank))
		if w < 0 {
			return invalid("rank %d: want 0 to %d", rank, c.Size()-1)
		}
		return output("world_rank", world, C.int(w))
	})
}

// description is the result of allcast_describe.
type description struct {
	Rank      int    `json:"rank"`
	Size      int    `json:"size"`
	Fabric    string `json:"fabric"`
	Multicast struct {
		Works  bool   `json:"works"`
		Reason string `json:"reason"`
	} `json:"multicast"`
	Datapath struct {
		Name   string `json:"name"`
		Hook   string `json:"hook"`
		Reason string `json:"reason"`
	} `json:"datapath"`
	Secure    bool `json:"secure"`
	Integrity bool `json:"integrity"`
}

//export goDescribe
func goDescribe(f *C.struct_failure, handle C.allcast_comm, text **C.char) C.int {
	return onComm(f, handle, func(c *comm) error {
		d := description{
			Rank: c.Rank(), Size: c.Size(), Fabric: c.Fabric(), Secure: c.Secure(), Integrity: c.Integrity(),
		}
		d.Multicast.Works, d.Multicast.Reason = c.Multicast()
		path := c.Datapath()
		d.Datapath.Name, d.Datapath.Hook, d.Datapath.Reason = path.Name, path.Hook, path.Reason
		return outputJSON(text, d)
	})
}

// peerCounters and counters are the result of allcast_stats.
type peerCounters struct {
	SentBytes     uint64 `json:"sent_bytes"`
	ReceivedBytes uint64 `json:"received_bytes"`
}

type counters struct {
	SentBytes       uint64               `json:"sent_bytes"`
	McastBytes      uint64               `json:"mcast_bytes"`
	ReceivedChunks  uint64               `json:"received_chunks"`
	CopiedChunks    uint64               `json:"copied_chunks"`
	RepairedBytes   uint64               `json:"repaired_bytes"`
	RepairedChunks  uint64               `json:"repaired_chunks"`
	DirectReads     uint64               `json:"direct_reads"`
	LateChunks      uint64               `json:"late_chunks"`
	DuplicateChunks uint64               `json:"duplicate_chunks"`
	ForeignChunks   uint64               `json:"foreign_chunks"`
	CorruptChunks   uint64               `json:"corrupt_chunks"`
	DroppedChunks   uint64               `json:"dropped_chunks"`
	RejectedConns   uint64               `json:"rejected_conns"`
	Peers           map[int]peerCounters `json:"peers"`
}

//export goStats
func goStats(f *C.struct_failure, handle C.allcast_comm, text **C.char) C.int {
	return onComm(f, handle, func(c *comm) error {
		s := c.Stats()
		peers := map[int]peerCounters{}
		for rank, p := range s.Peers {
			peers[rank] = peerCounters(p)
		}
		return outputJSON(text, counters{
			s.SentBytes, s.McastBytes, s.ReceivedChunks, s.CopiedChunks, s.RepairedBytes, s.RepairedChunks, s.DirectReads,
			s.LateChunks, s.DuplicateChunks, s.ForeignChunks, s.CorruptChunks, s.DroppedChunks, s.RejectedConns, peers,
		})
	})
}

// outputJSON stores a JSON text that the program frees.
func outputJSON(text **C.char, value any) error {
	if err := checkOut("json", text); err != nil {
		return err
	}
	b, err := json.Marshal(value)
	if err != nil {
		return err
	}
	*text = C.CString(string(b))
	return nil
}

//export goAbort
func goAbort(f *C.struct_failure, handle C.allcast_comm) C.int {
	return onComm(f, handle, func(c *comm) error { return c.Abort() })
}

//export goClose
func goClose(f *C.struct_failure, handle C.allcast_comm) C.int {
	return closeComm(f, handle, (*allcast.Comm).Close)
}

//export goCloseWithin
func goCloseWithin(f *C.struct_failure, handle C.allcast_comm, timeout C.int64_t) C.int {
	if timeout < 0 {
		return report(f, invalid("a limit of %d ms: want 0 or more", timeout))
	}
	return closeComm(f, handle, func(c *allcast.Comm) error {
		// The rank has left in any case. On a busy machine, that takes longer and continues.
		_ = c.CloseWithin(milliseconds(timeout))
		return nil
	})
}

// closeComm ends the use of a communicator and of its handle.
func closeComm(f *C.struct_failure, handle C.allcast_comm, end func(*allcast.Comm) error) C.int {
	return onComm(f, handle, func(c *comm) error {
		if _, mine := comms.remove(uint64(handle)); !mine {
			return fmt.Errorf("allcast: %w", allcast.ErrClosed) // another thread closes it
		}
		err := end(c.Comm)
		if c.Comm == c.world {
			comms.removeIf(func(other *comm) bool { return other.world == c.world })
		}
		return err
	})
}

// ended is the context of a call that may not wait.
var ended = func() context.Context {
	ctx, cancel := context.WithDeadline(context.Background(), time.Time{})
	cancel()
	return ctx
}()

// contextFor returns the context of a call that may last for timeout milliseconds, or forever if that is negative.
func contextFor(timeout C.int64_t) (context.Context, context.CancelFunc) {
	switch {
	case timeout < 0:
		return context.Background(), func() {}
	case timeout == 0:
		return ended, func() {}
	}
	return context.WithTimeout(context.Background(), milliseconds(timeout))
}

// milliseconds converts a time. The longest time that Go has is 292 years.
func milliseconds(n C.int64_t) time.Duration {
	const limit = (1<<63 - 1) / int64(time.Millisecond)
	return time.Duration(min(int64(n), limit)) * time.Millisecond
}

// makeComm makes a communicator from another one.
func makeComm(
	f *C.struct_failure, handle C.allcast_comm, timeout C.int64_t, sub *C.allcast_comm,
	from func(context.Context, *comm) (*allcast.Comm, error),
) C.int {
	return onComm(f, handle, func(c *comm) error {
		if err := checkOut("sub", sub); err != nil {
			return err
		}
		ctx, cancel := contextFor(timeout)
		defer cancel()
		made, err := from(ctx, c)
		if err != nil {
			return err
		}
		*sub = 0
		if made != nil {
			*sub = C.allcast_comm(comms.add(&comm{made, c.world}))
		}
		return nil
	})
}

//export goSplit
func goSplit(
	f *C.struct_failure, handle C.allcast_comm, color, key C.int, timeout C.int64_t, sub *C.allcast_comm,
) C.int {
	return makeComm(f, handle, timeout, sub, func(ctx context.Context, c *comm) (*allcast.Comm, error) {
		return c.Split(ctx, int(color), int(key))
	})
}

//export goSubset
func goSubset(
	f *C.struct_failure, handle C.allcast_comm, ranks *C.int, n C.size_t, tag *C.char, timeout C.int64_t,
	sub *C.allcast_comm,
) C.int {
	return makeComm(f, handle, timeout, sub, func(ctx context.Context, c *comm) (*allcast.Comm, error) {
		list, err := array("ranks", ranks, n)
		if err != nil {
			return nil, err
		}
		members := make([]int, len(list))
		for i, r := range list {
			members[i] = int(r)
		}
		name := ""
		if tag != nil {
			name = C.GoString(tag)
		}
		return c.Subset(ctx, members, name)
	})
}

//export goShrink
func goShrink(f *C.struct_failure, handle C.allcast_comm, timeout C.int64_t, sub *C.allcast_comm) C.int {
	return makeComm(f, handle, timeout, sub, func(ctx context.Context, c *comm) (*allcast.Comm, error) {
		return c.Shrink(ctx)
	})
}

// allocations are the results of allcast_alloc by address, which outlive their communicator.
var allocations struct {
	sync.Mutex
	by map[unsafe.Pointer]allocation
}

type allocation struct {
	comm   *allcast.Comm
	memory []byte
}

//export goAlloc
func goAlloc(f *C.struct_failure, handle C.allcast_comm, bytes C.size_t, memory *unsafe.Pointer) C.int {
	return onComm(f, handle, func(c *comm) error {
		if err := checkOut("memory", memory); err != nil {
			return err
		}
		n, err := toInt("bytes", bytes)
		if err != nil {
			return err
		}
		b, err := c.Alloc(max(n, 1)) // so that the address is unique
		if err != nil {
			return err
		}
		at := unsafe.Pointer(unsafe.SliceData(b))
		allocations.Lock()
		defer allocations.Unlock()
		if allocations.by == nil {
			allocations.by = map[unsafe.Pointer]allocation{}
		}
		allocations.by[at] = allocation{c.world, b}
		*memory = at
		return nil
	})
}

//export goFree
func goFree(f *C.struct_failure, _ C.allcast_comm, memory unsafe.Pointer) C.int {
	if memory == nil {
		return C.ALLCAST_OK
	}
	allocations.Lock()
	defer allocations.Unlock()
	a, ok := allocations.by[memory]
	if !ok {
		return report(f, fmt.Errorf("allcast: free: %w: free each result of allcast_alloc once", allcast.ErrNotAlloced))
	}
	err := a.comm.Free(a.memory)
	if err == nil {
		delete(allocations.by, memory)
	}
	return report(f, err)
}
