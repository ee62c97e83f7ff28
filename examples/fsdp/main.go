// Command fsdp shows the communication of fully sharded training, in which every rank owns a shard
// of every layer. Both passes gather the next layer while the current one computes. Meanwhile the
// backward pass also averages the gradients of the previous layer, and each rank keeps its shard of
// the result. Start it with
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
	flag.IntVar(&m.shard, "shard", 1<<18, "float32 parameters per layer that each rank owns")
	flag.IntVar(&m.steps, "steps", 3, "training steps")
	flag.Parse()
	if err := m.train(context.Background()); err != nil {
		log.Fatal(err)
	}
}

type model struct {
	layers, shard, steps int
	comm                 *allcast.Comm
	weights              [][]float32  // this rank's shard, by layer
	full                 [2][]float32 // gathered weights of the current and the next layer
	grads                [2][]float32 // gradients of the current and the previous layer
	averaged             [][]float32  // this rank's shard of the averaged gradients, by layer
}

func (m *model) train(ctx context.Context) (err error) {
	if m.comm, err = allcast.Join(ctx, allcast.Options{}); err != nil {
		return err
	}
	p := m.comm.Size()
	for l := range m.layers {
		m.weights = append(m.weights, make([]float32, m.shard))
		m.averaged = append(m.averaged, make([]float32, m.shard))
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
			fmt.Printf("step %d: %v, norm %.4f, %.1f MiB sent so far, %.1f MiB of them by multicast\n",
				step, time.Since(start).Round(time.Microsecond), m.norm(),
				float64(s.SentBytes)/(1<<20), float64(s.McastBytes)/(1<<20))
		}
	}
	return m.comm.Close()
}

// gather starts to gather a layer into one of two buffers.
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
		if reducing != nil { // of the previous layer, concurrent with the computation of this one
			if err := reducing.Wait(ctx); err != nil {
				return err
			}
			m.update(l + 1)
		}
		reducing, err = m.comm.StartReduceScatter(allcast.Bytes(m.grads[l%2]), allcast.Bytes(m.averaged[l]),
			allcast.Float32, allcast.Average)
		if err != nil {
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
	for i, g := range m.averaged[l] {
		m.weights[l][i] -= 0.01 * g
	}
}

// compute stands in for the forward pass of a layer.
func compute(w []float32) (sum float32) {
	for _, x := range w {
		sum += x * x
	}
	return sum
}

// gradients stands in for the backward pass of a layer.
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
