package plan

import (
	"context"
	"errors"
	"runtime"
	"sync"
)

// simulator runs simulations in parallel, each of them once.
type simulator struct {
	network  *Network
	model    *Model
	seed     uint64
	progress func(done, all int)

	results   map[string]estimate // by simulation.key
	done, all int
}

// run runs simulations and returns their estimates in order. It stops early if the context ends.
func (s *simulator) run(ctx context.Context, list []simulation) ([]estimate, error) {
	fresh := map[string]*simulation{}
	keys := make([]string, len(list))
	for i := range list {
		keys[i] = list[i].key(s.model)
		if _, known := s.results[keys[i]]; !known {
			fresh[keys[i]] = &list[i]
		}
	}
	s.all += len(fresh)
	if err := s.runAll(ctx, fresh); err != nil {
		return nil, err
	}
	estimates := make([]estimate, len(list))
	for i, key := range keys {
		estimates[i] = s.results[key]
		if list[i].scaled { // the result may be that of an exact simulation
			estimates[i].source = FromScaledSim
		}
	}
	return estimates, nil
}

func (s *simulator) runAll(ctx context.Context, list map[string]*simulation) error {
	var (
		mu     sync.Mutex
		failed []error
		wait   sync.WaitGroup
		slots  = make(chan struct{}, runtime.GOMAXPROCS(0))
	)
	for key, one := range list {
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if ctx.Err() != nil {
				return
			}
			e, err := one.run(s.network, s.model, s.seed)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = append(failed, err)
				return
			}
			s.results[key] = e
			s.done++
			s.progress(s.done, s.all)
		})
	}
	wait.Wait()
	return errors.Join(ctx.Err(), errors.Join(failed...))
}
