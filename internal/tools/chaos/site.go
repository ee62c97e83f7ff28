//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/allcast/allcast/internal/lab"
)

// maxTrees is the largest number of multicast trees of a job.
const maxTrees = 2

// site is the environment of the ranks.
type site struct {
	lab  *lab.Lab // nil if ranks run on this machine
	self string
	dir  string // directory of the ranks' logs
}

func newSite(ctx context.Context, cfg *config) (*site, error) {
	p := &site{}
	var err error
	if p.self, err = os.Executable(); err != nil {
		return nil, err
	}
	if p.dir, err = os.MkdirTemp("", "chaos-"); err != nil {
		return nil, err
	}
	if cfg.local {
		return p, nil
	}
	network := lab.Config{Name: cfg.name, Topology: fmt.Sprintf("star:%d", cfg.hosts), Groups: maxTrees}
	if cfg.mode == modeAggregators {
		network.Topology, network.Inc, network.Loss = fmt.Sprintf("fat-tree:%d,3,2", cfg.hosts), true, 0.005
	}
	p.lab, err = lab.Up(ctx, network, lab.Options{Self: []string{p.self}, Aggregator: []string{p.self, "aggregator"}})
	if errors.Is(err, lab.ErrUnable) && cfg.mode != modeAggregators {
		log.Printf("%v: on loopback instead", err)
		p.lab, err = nil, nil
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(p.dir))
	}
	return p, nil
}

// close removes the lab and checks that nothing of it is left.
func (p *site) close(keep bool) error {
	var err error
	if p.lab != nil {
		err = p.lab.Down()
		left, _ := filepath.Glob("/run/netns/" + p.lab.Plan.Config.Name + "-*") // the pattern is valid
		if len(left) > 0 {
			err = errors.Join(err, fmt.Errorf("namespaces were left behind: %v", left))
		}
	}
	if !keep {
		err = errors.Join(err, os.RemoveAll(p.dir))
	}
	return err
}

// setLink cuts or restores the link of a rank.
func (p *site) setLink(rank int, up bool) error {
	return p.lab.SetLink("host"+strconv.Itoa(rank), "", up)
}

// job returns the environment variables that all ranks of a generation share.
func (p *site) job(size int) ([]string, error) {
	port := "29500"
	if p.lab == nil {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		// Rank 0 reuses the port. It retries if the address is in use.
		port = strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
		if err := l.Close(); err != nil {
			return nil, err
		}
	}
	var key [32]byte
	_, _ = rand.Read(key[:]) // never fails
	return []string{
		"WORLD_SIZE=" + strconv.Itoa(size), "ALLCAST_KEY=" + hex.EncodeToString(key[:]),
		"ALLCAST_RECORDER=" + p.dir, "ALLCAST_DEBUG=info", "GOMAXPROCS=1",
		"MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port, // a lab has another address
	}, nil
}

// command returns the command of a rank. The kernel kills the rank when this process ends.
func (p *site) command(rank int, env []string) *exec.Cmd {
	cmd := exec.Command(p.self, "rank")
	if p.lab != nil {
		cmd = exec.Command(p.self, "enter", p.lab.Plan.Config.Name)
	}
	cmd.Env = append(append(os.Environ(), env...), "RANK="+strconv.Itoa(rank))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}
