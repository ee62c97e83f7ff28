package allcast_test

import (
	"context"
	"fmt"

	"github.com/allcast/allcast"
)

func ExampleComm_Gather() {
	local(3, func(ctx context.Context, c *allcast.Comm) error {
		var all []byte
		if c.Rank() == 0 {
			all = make([]byte, 3*2)
		}
		if err := c.Gather(ctx, fmt.Appendf(nil, "r%d", c.Rank()), all, 0); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Printf("%s\n", all)
		}
		return nil
	})
	// Output: r0r1r2
}

// Only the root knows how much each rank sends.
func ExampleComm_Gatherv() {
	local(3, func(ctx context.Context, c *allcast.Comm) error {
		mine := [][]byte{[]byte("x"), nil, []byte("abc")}[c.Rank()]
		if c.Rank() != 0 {
			return c.Gatherv(ctx, mine, nil, nil, 0)
		}
		all := make([]byte, 4)
		err := c.Gatherv(ctx, mine, all, []int{1, 0, 3}, 0)
		fmt.Printf("%s\n", all)
		return err
	})
	// Output: xabc
}

func ExampleScatterSlice() {
	local(3, func(ctx context.Context, c *allcast.Comm) error {
		var all []int
		if c.Rank() == 1 {
			all = []int{10, 11, 20, 21, 30, 31}
		}
		mine := make([]int, 2)
		if err := allcast.ScatterSlice(ctx, c, all, mine, 1); err != nil {
			return err
		}
		if c.Rank() == 2 {
			fmt.Println(mine)
		}
		return nil
	})
	// Output: [30 31]
}

// Only the root knows how much each rank receives.
func ExampleComm_Scatterv() {
	local(2, func(ctx context.Context, c *allcast.Comm) error {
		if c.Rank() == 0 {
			return c.Scatterv(ctx, []byte("abcde"), make([]byte, 2), []int{2, 3}, 0)
		}
		mine := make([]byte, 3)
		err := c.Scatterv(ctx, nil, mine, nil, 0)
		fmt.Printf("%s\n", mine)
		return err
	})
	// Output: cde
}

func ExampleReduceSlice() {
	local(4, func(ctx context.Context, c *allcast.Comm) error {
		var largest []int
		if c.Rank() == 0 {
			largest = make([]int, 1)
		}
		err := allcast.ReduceSlice(ctx, c, []int{c.Rank() * 100}, largest, allcast.Max, 0)
		if c.Rank() == 0 {
			fmt.Println(largest)
		}
		return err
	})
	// Output: [300]
}

// Ranks with batches of different sizes weight their gradients.
func ExampleWithFactor() {
	local(2, func(ctx context.Context, c *allcast.Comm) error {
		weight := []float64{0.25, 0.75}[c.Rank()]
		grads := []float32{4, 8}
		err := allcast.AllreduceSlice(ctx, c, nil, grads, allcast.PremultipliedSum, allcast.WithFactor(weight))
		if c.Rank() == 0 {
			fmt.Println(grads)
		}
		return err
	})
	// Output: [4 8]
}

// ReduceScatterv gives each rank a part of its own size.
func ExampleComm_ReduceScatterv() {
	local(2, func(ctx context.Context, c *allcast.Comm) error {
		counts := []int{4, 8} // bytes: one element for rank 0, and two for rank 1
		mine := make([]int32, 1+c.Rank())
		err := c.ReduceScatterv(ctx, allcast.Bytes([]int32{1, 2, 3}), allcast.Bytes(mine), counts, allcast.Int32, allcast.Sum)
		if c.Rank() == 1 {
			fmt.Println(mine)
		}
		return err
	})
	// Output: [4 6]
}

func ExampleAlltoallSlice() {
	local(3, func(ctx context.Context, c *allcast.Comm) error {
		send := []int{10 * c.Rank(), 10*c.Rank() + 1, 10*c.Rank() + 2} // element i goes to rank i
		recv := make([]int, 3)
		if err := allcast.AlltoallSlice(ctx, c, send, recv); err != nil {
			return err
		}
		if c.Rank() == 1 {
			fmt.Println(recv)
		}
		return nil
	})
	// Output: [1 11 21]
}

// Each rank knows how much it sends and receives, and nothing else.
func ExampleComm_Alltoallv() {
	local(2, func(ctx context.Context, c *allcast.Comm) error {
		send, recv := []byte("Abcd"), make([]byte, 3)
		sendCounts, recvCounts := []int{1, 3}, []int{1, 2}
		if c.Rank() == 1 {
			send, recv = []byte("xyZ"), make([]byte, 4)
			sendCounts, recvCounts = []int{2, 1}, []int{3, 1}
		}
		err := c.Alltoallv(ctx, send, recv, sendCounts, recvCounts)
		if c.Rank() == 1 {
			fmt.Printf("%s\n", recv)
		}
		return err
	})
	// Output: bcdZ
}

// Send and Recv take no place in the order of collectives.
func ExampleComm_Send() {
	local(2, func(ctx context.Context, c *allcast.Comm) error {
		const tag = 7
		if c.Rank() == 0 {
			return c.Send(ctx, []byte("hello"), 1, tag)
		}
		buf := make([]byte, 100)
		m, err := c.Recv(ctx, buf, allcast.AnySource, tag)
		if err != nil {
			return err
		}
		fmt.Printf("%s from rank %d\n", buf[:m.Bytes], m.Source)
		return nil
	})
	// Output: hello from rank 0
}

func ExampleSendSlice() {
	local(2, func(ctx context.Context, c *allcast.Comm) error {
		if c.Rank() == 0 {
			return allcast.SendSlice(ctx, c, []float64{1.5, 2.5}, 1, 0)
		}
		values := make([]float64, 10)
		n, source, err := allcast.RecvSlice(ctx, c, values, 0, 0)
		fmt.Println(values[:n], "from rank", source)
		return err
	})
	// Output: [1.5 2.5] from rank 0
}

// In a group, all ranks may send first: the operations run at the same time.
func ExampleGroup() {
	local(3, func(ctx context.Context, c *allcast.Comm) error {
		right, left := (c.Rank()+1)%3, (c.Rank()+2)%3
		in := make([]byte, 2)
		var g allcast.Group
		g.Add(c.StartSend(fmt.Appendf(nil, "r%d", c.Rank()), right, 0))
		g.Add(c.StartRecv(in, left, 0))
		if err := g.Wait(ctx); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Printf("%s\n", in)
		}
		return nil
	})
	// Output: r2
}

// The operation that ends first is handled first.
func ExampleWaitAny() {
	local(2, func(ctx context.Context, c *allcast.Comm) error {
		const slow, fast, seen = 0, 1, 2 // tags
		if c.Rank() == 1 {
			if err := c.Send(ctx, []byte("fast"), 0, fast); err != nil {
				return err
			}
			if _, err := c.Recv(ctx, nil, 0, seen); err != nil {
				return err
			}
			return c.Send(ctx, []byte("slow"), 0, slow)
		}
		bufs := [][]byte{make([]byte, 4), make([]byte, 4)}
		var g allcast.Group
		g.Add(c.StartRecv(bufs[0], 1, slow))
		g.Add(c.StartRecv(bufs[1], 1, fast))
		first, err := allcast.WaitAny(ctx, g.Requests()...)
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", bufs[first])
		if err := c.Send(ctx, nil, 1, seen); err != nil {
			return err
		}
		return g.Wait(ctx)
	})
	// Output: fast
}

// Many small tensors travel as one operation.
func ExampleComm_BroadcastCoalesced() {
	local(2, func(ctx context.Context, c *allcast.Comm) error {
		tensors := [][]byte{make([]byte, 1), make([]byte, 2), make([]byte, 3)}
		if c.Rank() == 0 {
			tensors = [][]byte{[]byte("a"), []byte("bc"), []byte("def")}
		}
		err := c.BroadcastCoalesced(ctx, tensors, 0)
		if c.Rank() == 1 {
			fmt.Printf("%s\n", tensors)
		}
		return err
	})
	// Output: [a bc def]
}

func ExampleComm_AllgatherCoalesced() {
	local(2, func(ctx context.Context, c *allcast.Comm) error {
		sends := [][]byte{fmt.Appendf(nil, "%d", c.Rank()), fmt.Appendf(nil, "x%d", c.Rank())}
		recvs := [][]byte{make([]byte, 2), make([]byte, 4)}
		err := c.AllgatherCoalesced(ctx, sends, recvs)
		if c.Rank() == 0 {
			fmt.Printf("%s\n", recvs)
		}
		return err
	})
	// Output: [01 x0x1]
}

// Only the members of a subset take part in making it.
func ExampleComm_Subset() {
	local(4, func(ctx context.Context, c *allcast.Comm) error {
		members := []int{3, 1}
		if c.Rank() != 1 && c.Rank() != 3 {
			return nil
		}
		pair, err := c.Subset(ctx, members, "pair")
		if err != nil {
			return err
		}
		defer func() { _ = pair.Close() }()
		both := make([]byte, 2)
		if err := pair.Allgather(ctx, fmt.Append(nil, c.Rank()), both); err != nil {
			return err
		}
		if pair.Rank() == 0 {
			fmt.Printf("%s\n", both)
		}
		return nil
	})
	// Output: 31
}
