//go:build verbs

package verbs_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"
)

var ports atomic.Int32

// rankProcess is one of a job's.
type rankProcess struct {
	*exec.Cmd
	out, err bytes.Buffer
}

// start starts the ranks of a job. Nobody else uses ports here.
func start(t *testing.T, ranks int, devices, mode string, env ...string) []*rankProcess {
	t.Helper()
	port := 20000 + ports.Add(1)
	var all []*rankProcess
	for r := range ranks {
		p := &rankProcess{Cmd: exec.Command(os.Args[0])}
		p.Stdout, p.Stderr = &p.out, &p.err
		p.Env = append(os.Environ(), "VERBS_RANK="+mode, fmt.Sprintf("RANK=%d", r), fmt.Sprintf("WORLD_SIZE=%d", ranks), "MASTER_ADDR=127.0.0.1",
			fmt.Sprintf("MASTER_PORT=%d", port), "ALLCAST_KEY=0123456789abcdef0123456789abcdef", "ALLCAST_FABRIC=verbs", "ALLCAST_DEVICE="+devices)
		p.Env = append(p.Env, env...)
		must(t, p.Start())
		all = append(all, p)
	}
	t.Cleanup(func() {
		for _, p := range all {
			if p.ProcessState == nil {
				_ = p.Process.Kill()
				_ = p.Wait()
			}
		}
	})
	return all
}

// finish waits for all ranks, and returns what they said.
func finish(t *testing.T, all []*rankProcess) []verdict {
	t.Helper()
	var said []verdict
	for r, p := range all {
		if err := p.Wait(); err != nil {
			t.Fatalf("rank %d: %v\n%s%s", r, err, &p.out, &p.err)
		}
		v, err := parse(p.out.String())
		if err != nil {
			t.Fatalf("rank %d: %v: %s", r, err, &p.out)
		}
		said = append(said, v)
	}
	return said
}

func TestMatrix(t *testing.T) {
	for _, net := range []struct {
		name string
		make func(t *testing.T) string
	}{{"dummy", dummyNet}, {"veth", func(t *testing.T) string { t.Helper(); return vethNet(t, 0) }}} {
		t.Run(net.name, func(t *testing.T) {
			devices := net.make(t)
			for _, ranks := range []int{2, 3, 4} {
				t.Run(fmt.Sprintf("ranks=%d", ranks), func(t *testing.T) {
					begin := time.Now()
					for _, v := range finish(t, start(t, ranks, devices, "matrix")) {
						if v.Fabric != "verbs" || v.Received == 0 {
							t.Errorf("rank %d: fabric %s, %d chunks by multicast", v.Rank, v.Fabric, v.Received)
						}
						t.Logf("%+v, %v", v, time.Since(begin).Round(time.Millisecond))
					}
				})
			}
		})
	}
}
