package allcast_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/calltest"
)

// Many buffers as one operation arrive as one operation per buffer would bring them.
func TestCoalesced(t *testing.T) {
	lengths := []int{0, 1, 4096, 7, 0, 100_000, 3}
	for _, op := range []string{"broadcast", "allgather"} {
		each(t, op, func(ctx context.Context, c *allcast.Comm, algo string) error {
			root := c.Size() - 1
			var bufs, recvs, want [][]byte
			for i, n := range lengths {
				bufs = append(bufs, calltest.Pattern(uint64(i), c.Rank(), n))
				if op == "broadcast" {
					want = append(want, calltest.Pattern(uint64(i), root, n))
					continue
				}
				recvs = append(recvs, make([]byte, n*c.Size()))
				want = append(want, calltest.Gathered(uint64(i), c.Size(), n))
			}
			start := func() (*allcast.Request, error) {
				return c.StartBroadcastCoalesced(bufs, root, allcast.WithAlgorithm(algo))
			}
			if op == "allgather" {
				start = func() (*allcast.Request, error) {
					return c.StartAllgatherCoalesced(bufs, recvs, allcast.WithAlgorithm(algo))
				}
			}
			r, err := start()
			if err := calltest.Wait(ctx, r, err, algo); err != nil {
				return err
			}
			got := bufs
			if op == "allgather" {
				got = recvs
			}
			for i := range want {
				if !bytes.Equal(got[i], want[i]) {
					return fmt.Errorf("buffer %d: wrong data", i)
				}
			}
			return nil
		})
	}
}

// Buffers that add up to the same size on all ranks, but are cut differently, are a mismatch.
func TestCoalescedSizesDiffer(t *testing.T) {
	allcasttest.Run(t, 2, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		bufs := [][]byte{make([]byte, 3+c.Rank()), make([]byte, 5-c.Rank())}
		recvs := [][]byte{make([]byte, 2*len(bufs[0])), make([]byte, 2*len(bufs[1]))}
		err := c.AllgatherCoalesced(ctx, bufs, recvs)
		if !errors.Is(err, allcast.ErrMismatch) || strings.Count(err.Error(), "allcast:") != 1 {
			return fmt.Errorf("error %v, want ErrMismatch", err)
		}
		return nil
	})
}

// The lists of buffers belong to the caller again when an operation has started.
func TestCoalescedListsReused(t *testing.T) {
	allcasttest.Run(t, 2, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		send, recv, buf := calltest.Pattern(1, c.Rank(), 100), make([]byte, 200), calltest.Pattern(2, c.Rank(), 100)
		sends, recvs, bufs := [][]byte{send}, [][]byte{recv}, [][]byte{buf}
		var g allcast.Group
		if c.Rank() == 0 {
			g.Add(c.StartAllgatherCoalesced(sends, recvs))
			g.Add(c.StartBroadcastCoalesced(bufs, 1))
			sends[0], recvs[0], bufs[0] = make([]byte, 1000), nil, nil
		}
		if err := c.Send(ctx, nil, 1-c.Rank(), 0); err != nil {
			return err
		}
		if _, err := c.Recv(ctx, nil, 1-c.Rank(), 0); err != nil {
			return err
		}
		if c.Rank() == 1 {
			g.Add(c.StartAllgatherCoalesced(sends, recvs))
			g.Add(c.StartBroadcastCoalesced(bufs, 1))
		}
		err := calltest.Equal(g.Wait(ctx), recv, calltest.Gathered(1, 2, 100))
		return calltest.Equal(err, buf, calltest.Pattern(2, 1, 100))
	})
}

// Memory that a coalesced operation will write to cannot be freed before the operation has ended.
func TestCoalescedUsesMemory(t *testing.T) {
	allcasttest.Run(t, 2, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		recv, err := c.Alloc(200)
		if err != nil {
			return err
		}
		if c.Rank() == 1 { // it starts when rank 0 has looked
			if _, err := c.Recv(ctx, nil, 0, 0); err != nil {
				return err
			}
		}
		r, err := c.StartAllgatherCoalesced([][]byte{calltest.Pattern(1, c.Rank(), 100)}, [][]byte{recv})
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			if err := c.Free(recv); !errors.Is(err, allcast.ErrInUse) {
				return fmt.Errorf("error %v, want ErrInUse", err)
			}
			if err := c.Send(ctx, nil, 1, 0); err != nil {
				return err
			}
		}
		return errors.Join(calltest.Equal(r.Wait(ctx), recv, calltest.Gathered(1, 2, 100)), c.Free(recv))
	})
}

// A group waits for all of its operations, and WaitAny for one of them.
func TestGroup(t *testing.T) {
	allcasttest.Run(t, 3, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		right, left := (c.Rank()+1)%3, (c.Rank()+2)%3
		in, sum := make([]byte, 1<<20), make([]byte, 300)
		var g allcast.Group
		g.Add(c.StartAllgather(calltest.Pattern(1, c.Rank(), 100), sum))
		g.Add(c.StartSend(calltest.Pattern(2, c.Rank(), len(in)), right, 0))
		g.Add(c.StartRecv(in, left, 0))
		requests := g.Requests()
		if err := g.Wait(ctx); err != nil {
			return err
		}
		if len(requests) != 3 || len(g.Requests()) != 0 {
			return fmt.Errorf("%d requests, %d after Wait", len(requests), len(g.Requests()))
		}
		if !bytes.Equal(in, calltest.Pattern(2, left, len(in))) || !bytes.Equal(sum, calltest.Gathered(1, 3, 100)) {
			return errors.New("wrong data")
		}
		if i, err := allcast.WaitAny(ctx, requests...); i != 0 || err != nil {
			return fmt.Errorf("WaitAny of requests that have ended: %d, %w", i, err)
		}
		unmatched, err := c.StartRecv(in, left, 1)
		if err != nil {
			return err
		}
		barrier, err := c.StartBarrier()
		if err != nil {
			return err
		}
		if i, err := allcast.WaitAny(ctx, unmatched, barrier); i != 1 || err != nil {
			return fmt.Errorf("WaitAny: %d, %w", i, err)
		}
		if err := c.Barrier(ctx); err != nil { // no rank sends before all have looked
			return err
		}
		g.Add(unmatched, nil)
		g.Add(c.StartSend(nil, 99, 0))
		if err := c.Send(ctx, calltest.Pattern(3, c.Rank(), 10), right, 1); err != nil {
			return err
		}
		if err := g.Wait(ctx); !errors.Is(err, allcast.ErrInvalid) {
			return fmt.Errorf("a group with an invalid call: %v", err)
		}
		return calltest.Equal(nil, in[:unmatched.Message().Bytes], calltest.Pattern(3, left, 10))
	})
}
