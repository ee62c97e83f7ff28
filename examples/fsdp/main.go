// Command fsdp shows the communication of fully sharded training: every rank owns
// a shard of every layer. Forward and backward passes gather the layer that comes
// next while the current one computes; the backward pass sums the gradients of the
// last layer meanwhile, and leaves each rank its shard. Start it with
//
//	allcast run -n 4 -- go run ./examples/fsdp
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"time"

	"github.com/allcast/allcast"
)

func main() {
	log.SetFlags(0)
	m := model{}
	flag.IntVar(&m.layers, "layers", 8, "number of layers")
	flag.IntVar(&m.shard, "shard", 1<<18, "float32 parameters of a layer that each rank owns")
	flag.IntVar(&m.steps, "steps", 3, "training steps")
	flag.Parse()
	if err := m.train(context.Background()); err != nil {
		log.Fatal(err)
	}
}

type model struct {
	layers, shard, steps int
	comm                 *allcast.Comm
	weights              [][]float32 // by layer: our shard
	full                 [2][]float32
	grads                [2][]float32
	summed               [][]float32
}

func (m *model) train(ctx context.Context) (err error) {
	if m.comm, err = allcast.Join(ctx, allcast.Options{}); err != nil {
		return err
	}
	p := m.comm.Size()
	for l := range m.layers {
		m.weights = append(m.weights, make([]float32, m.shard))
		m.summed = append(m.summed, make([]float32, m.shard))
		for i := range m.weights[l] {
			m.weights[l][i] = float32(m.comm.Rank()+1) / float32(l+1)
		}
	}
	for i := range m.full {
		m.full[i], m.grads[i] = make([]float32, m.shard*p), make([]float32, m.shard*p)
	}
	for step := range m.steps {
		start := time.Now()
		if err := m.forward(ctx); err != nil {
			return fmt.Errorf("step %d, forward: %w", step, err)
		}
		if err := m.backward(ctx); err != nil {
			return fmt.Errorf("step %d, backward: %w", step, err)
		}
		if m.comm.Rank() == 0 {
			s := m.comm.Stats()
			fmt.Printf("step %d: %v, norm %.4f, sent so far %.1f MiB, of it by multicast %.1f MiB\n",
				step, time.Since(start).Round(time.Microsecond), m.norm(), float64(s.SentBytes)/(1<<20), float64(s.McastBytes)/(1<<20))
		}
	}
	return m.comm.Close()
}

// gather begins to collect a layer in one of two buffers.
func (m *model) gather(l int) (*allcast.Request, error) {
	return m.comm.StartAllgather(allcast.Bytes(m.weights[l]), allcast.Bytes(m.full[l%2]))
}

func (m *model) forward(ctx context.Context) error {
	next, err := m.gather(0)
	if err != nil {
		return err
	}
	for l := range m.layers {
		if err := next.Wait(ctx); err != nil {
			return err
		}
		if l+1 < m.layers {
			if next, err = m.gather(l + 1); err != nil {
				return err
			}
		}
		compute(m.full[l%2])
	}
	return nil
}

func (m *model) backward(ctx context.Context) error {
	next, err := m.gather(m.layers - 1)
	if err != nil {
		return err
	}
	var reducing *allcast.Request
	for l := m.layers - 1; l >= 0; l-- {
		if err := next.Wait(ctx); err != nil {
			return err
		}
		if l > 0 {
			if next, err = m.gather(l - 1); err != nil {
				return err
			}
		}
		gradients(m.grads[l%2], m.full[l%2])
		if reducing != nil { // of the layer before: it had the time of this one
			if err := reducing.Wait(ctx); err != nil {
				return err
			}
			m.update(l + 1)
		}
		if reducing, err = m.comm.StartReduceScatter(allcast.Bytes(m.grads[l%2]), allcast.Bytes(m.summed[l]), allcast.Float32, allcast.Average); err != nil {
			return err
		}
	}
	if err := reducing.Wait(ctx); err != nil {
		return err
	}
	m.update(0)
	return nil
}

func (m *model) update(l int) {
	for i, g := range m.summed[l] {
		m.weights[l][i] -= 0.01 * g
	}
}

// compute stands for the forward pass of a layer.
func compute(w []float32) (sum float32) {
	for _, x := range w {
		sum += x * x
	}
	return sum
}

// gradients stands for the backward pass of a layer.
func gradients(g, w []float32) {
	for i, x := range w {
		g[i] = 2 * x
	}
}

func (m *model) norm() float64 {
	var sum float64
	for _, w := range m.weights {
		for _, x := range w {
			sum += float64(x) * float64(x)
		}
	}
	return math.Sqrt(sum)
}
