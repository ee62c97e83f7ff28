// Command params broadcasts the parameters of a model from rank 0 to all ranks. The data crosses
// every link once, for any size and any number of ranks. Start it with
//
//	allcast run -n 8 -- go run ./examples/params
package main

import (
	"context"
	"flag"
	"fmt"
	"hash/crc32"
	"log"
	"math/rand/v2"
	"time"

	"github.com/allcast/allcast"
)

func main() {
	log.SetFlags(0)
	n := flag.Int("params", 4<<20, "number of float32 parameters")
	flag.Parse()
	if err := run(context.Background(), *n); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, n int) error {
	comm, err := allcast.Join(ctx, allcast.Options{})
	if err != nil {
		return err
	}
	params := make([]float32, n)
	if comm.Rank() == 0 { // in a real program: read the checkpoint
		r := rand.New(rand.NewPCG(1, 2))
		for i := range params {
			params[i] = r.Float32()
		}
	}
	start := time.Now()
	if err := allcast.BroadcastSlice(ctx, comm, params, 0); err != nil {
		return err
	}
	took := time.Since(start)

	// All ranks have the same bytes if the smallest and the largest checksum agree.
	sum := []uint32{crc32.ChecksumIEEE(allcast.Bytes(params))}
	smallest, largest := []uint32{0}, []uint32{0}
	if err := allcast.AllreduceSlice(ctx, comm, sum, smallest, allcast.Min); err != nil {
		return err
	}
	if err := allcast.AllreduceSlice(ctx, comm, sum, largest, allcast.Max); err != nil {
		return err
	}
	if smallest[0] != largest[0] {
		return fmt.Errorf("rank %d: the Broadcast delivered wrong bytes: checksums from %08x to %08x",
			comm.Rank(), smallest[0], largest[0])
	}
	if comm.Rank() == 0 {
		s := comm.Stats()
		fmt.Printf("%d MiB to %d ranks in %v; rank 0 sent %.1f MiB; checksum %08x everywhere\n",
			4*n>>20, comm.Size()-1, took.Round(time.Microsecond), float64(s.SentBytes)/(1<<20), sum[0])
	}
	return comm.Close()
}
