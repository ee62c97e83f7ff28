package allcast_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
)

// local runs ranks as goroutines of one process, which is enough to show how calls look. A real job
// has one process per rank and leaves Options empty.
func local(size int, f func(ctx context.Context, c *allcast.Comm) error) {
	opts := slices.Repeat([]allcast.Options{{Logger: slog.New(slog.DiscardHandler)}}, size)
	for _, err := range allcasttest.JoinAll(context.Background(), opts, f) {
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

func ExampleAllreduceSlice_half() {
	local(2, func(ctx context.Context, c *allcast.Comm) error {
		grads := []allcast.BF16{allcast.NewBF16(0.5), allcast.NewBF16(float32(c.Rank()))}
		if err := allcast.AllreduceSlice(ctx, c, nil, grads, allcast.Average); err != nil { // in place
			return err
		}
		if c.Rank() == 0 {
			fmt.Println(grads, grads[1].Float32())
		}
		return nil
	})
	// Output: [0.5 0.5] 0.5
}

// The ranks stop when one of them wants to.
func ExampleAllreduceSlice_bool() {
	local(3, func(ctx context.Context, c *allcast.Comm) error {
		stop := []bool{c.Rank() == 2}
		if err := allcast.AllreduceSlice(ctx, c, nil, stop, allcast.Or); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println(stop)
		}
		return nil
	})
	// Output: [true]
}

func ExampleAllgathervSlice() {
	local(2, func(ctx context.Context, c *allcast.Comm) error {
		counts := []int{1, 2} // elements
		mine := [][]float64{{0.5}, {1, 2}}[c.Rank()]
		all := make([]float64, 3)
		if err := allcast.AllgathervSlice(ctx, c, mine, all, counts); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println(all)
		}
		return nil
	})
	// Output: [0.5 1 2]
}

// While the program computes with the weights of one layer, an Allgather fetches those of the next.
func Example_overlap() {
	const layers = 3
	local(2, func(ctx context.Context, c *allcast.Comm) error {
		var full [layers][]float32
		fetch := func(layer int) (*allcast.Request, error) {
			shard := []float32{float32(10*layer + c.Rank())}
			full[layer] = make([]float32, c.Size())
			return c.StartAllgather(allcast.Bytes(shard), allcast.Bytes(full[layer]))
		}
		next, err := fetch(0)
		if err != nil {
			return err
		}
		for layer := range layers {
			if err := next.Wait(ctx); err != nil {
				return err
			}
			if layer+1 < layers {
				if next, err = fetch(layer + 1); err != nil {
					return err
				}
			}
			if c.Rank() == 0 {
				fmt.Println("compute with", full[layer])
			}
		}
		return nil
	})
	// Output:
	// compute with [0 1]
	// compute with [10 11]
	// compute with [20 21]
}

// Allcast owns the buffers of an operation until the operation has ended.
func ExampleRequest_Wait() {
	local(2, func(ctx context.Context, c *allcast.Comm) error {
		all := make([]byte, 2)
		r, err := c.StartAllgather([]byte{byte('a' + c.Rank())}, all)
		if err != nil {
			return err
		}
		squares := 0
		for i := range 10 { // computes while the operation runs
			squares += i * i
		}
		if err := r.Wait(ctx); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Printf("%s %d\n", all, squares)
		}
		return nil
	})
	// Output: ab 285
}

// Ranks of the same color share a new communicator: here each row of a grid of 2 by 2.
func ExampleComm_Split() {
	local(4, func(ctx context.Context, c *allcast.Comm) error {
		row, err := c.Split(ctx, c.Rank()/2, c.Rank())
		if err != nil {
			return err
		}
		sum := []int{c.Rank()}
		if err := allcast.AllreduceSlice(ctx, row, nil, sum, allcast.Sum); err != nil {
			return err
		}
		if c.Rank() == 3 {
			fmt.Printf("rank %d of the row is rank %d of the world\n", row.Rank(), row.WorldRank(row.Rank()))
			fmt.Println("the sum of the row is", sum[0])
		}
		return row.Close()
	})
	// Output:
	// rank 1 of the row is rank 3 of the world
	// the sum of the row is 5
}
