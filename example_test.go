package allcast_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
)

// local runs ranks as goroutines of one process, which is enough to show how calls look. A real job
// has one process per rank and leaves Options empty.
func local(size int, f func(ctx context.Context, c *allcast.Comm) error) {
	for _, err := range allcasttest.JoinAll(context.Background(), make([]allcast.Options, size), f) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// Start this program with "allcast run -n 8 -- PROGRAM", torchrun, mpirun or srun.
func ExampleJoin() {
	ctx := context.Background()
	comm, err := allcast.Join(ctx, allcast.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer func() { _ = comm.Close() }()
	fmt.Printf("I am rank %d of %d\n", comm.Rank(), comm.Size())
}

func ExampleComm_Allgather() {
	local(3, func(ctx context.Context, c *allcast.Comm) error {
		all := make([]byte, 3*2)
		mine := fmt.Appendf(nil, "r%d", c.Rank())
		if err := c.Allgather(ctx, mine, all); err != nil {
			return err
		}
		if c.Rank() == 2 {
			fmt.Printf("%s\n", all)
		}
		return nil
	})
	// Output: r0r1r2
}

func ExampleComm_Allgatherv() {
	local(3, func(ctx context.Context, c *allcast.Comm) error {
		counts := []int{1, 0, 3}
		all := make([]byte, 4)
		mine := [][]byte{[]byte("x"), nil, []byte("abc")}[c.Rank()]
		if err := c.Allgatherv(ctx, mine, all, counts); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Printf("%s\n", all)
		}
		return nil
	})
	// Output: xabc
}

func ExampleComm_Broadcast() {
	local(3, func(ctx context.Context, c *allcast.Comm) error {
		buf := make([]byte, 5)
		if c.Rank() == 1 {
			copy(buf, "hello")
		}
		if err := c.Broadcast(ctx, buf, 1, allcast.WithAlgorithm("mcast")); err != nil {
			return err
		}
		if c.Rank() == 2 {
			fmt.Printf("%s\n", buf)
		}
		return nil
	})
	// Output: hello
}

func ExampleAllreduceSlice() {
	local(4, func(ctx context.Context, c *allcast.Comm) error {
		mine, sum := []float32{1, float32(c.Rank())}, make([]float32, 2)
		if err := allcast.AllreduceSlice(ctx, c, mine, sum, allcast.Sum); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println(sum)
		}
		return nil
	})
	// Output: [4 6]
}

func ExampleReduceScatterSlice() {
	local(2, func(ctx context.Context, c *allcast.Comm) error {
		all, mine := []int64{1, 2, 3, 4}, make([]int64, 2)
		if err := allcast.ReduceScatterSlice(ctx, c, all, mine, allcast.Sum); err != nil {
			return err
		}
		if c.Rank() == 1 {
			fmt.Println(mine)
		}
		return nil
	})
	// Output: [6 8]
}

// An operation runs while the program computes.
func ExampleRequest_Wait() {
	local(2, func(ctx context.Context, c *allcast.Comm) error {
		all := make([]byte, 2)
		r, err := c.StartAllgather([]byte{byte('a' + c.Rank())}, all)
		if err != nil {
			return err
		}
		// Compute here. Allcast owns all until r is done.
		if err := r.Wait(ctx); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Printf("%s\n", all)
		}
		return nil
	})
	// Output: ab
}

// Ranks of the same color share a new communicator.
func ExampleComm_Split() {
	local(4, func(ctx context.Context, c *allcast.Comm) error {
		half, err := c.Split(ctx, c.Rank()%2, c.Rank())
		if err != nil {
			return err
		}
		if c.Rank() == 3 {
			fmt.Printf("rank %d of the world is rank %d of %d\n", c.Rank(), half.Rank(), half.Size())
		}
		return nil
	})
	// Output: rank 3 of the world is rank 1 of 2
}

// A failure names the rank that failed.
func ExampleRankError() {
	err := error(&allcast.RankError{Rank: 5, Op: "allgather", Phase: "multicast"})
	var failed *allcast.RankError
	if errors.As(err, &failed) {
		fmt.Println("rank", failed.Rank, "failed")
	}
	// Output: rank 5 failed
}
