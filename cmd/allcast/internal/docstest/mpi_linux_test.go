package docstest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
	"github.com/allcast/allcast/cmd/allcast/internal/sshlab"
	"github.com/allcast/allcast/internal/testenv"
)

// MPI's launchers start ranks on two machines through sshd. Open MPI needs no MASTER_ADDR; without it, ranks of MPICH
// say what to add.
func TestMPI(t *testing.T) {
	testenv.NeedVar(t, networkVar, "\"make test-network\" runs it")
	// MPI's launchers take hosts with one name for one machine.
	named := func(l *sshlab.Lab, host int) []string {
		text := fmt.Sprintf("127.0.0.1 localhost\n%s node1\n%s node2\n", l.Addr(0), l.Addr(1))
		if err := os.WriteFile(filepath.Join(l.Dir, "hosts"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		const script = `set -e; mount --bind "$0" /etc/hosts; hostname "$1"; shift; exec "$@"`
		return []string{"unshare", "-mu", "sh", "-c", script, filepath.Join(l.Dir, "hosts"), fmt.Sprint("node", host+1)}
	}
	l := sshlab.StartIn(t, 2, named)
	agent := filepath.Join(l.Dir, "agent")
	if err := os.WriteFile(agent, []byte("#!/bin/sh\nexec "+l.SSH()+" \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	const key = "ALLCAST_KEY=00112233445566778899aabbccddeeff"
	const hosts = "node1:2,node2:2"
	perf := []string{sshlab.Self(t), "perf", "allgather", "--json", "--algo", "mcast", "-b", "64K", "-n", "3", "-w", "0"}
	openMPI := []string{
		"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--mca", "plm_rsh_agent", agent,
		"--mca", "oob_tcp_if_include", "eth0", "-x", "ALLCAST_KEY", "-x", "ALLCAST_GROUPS", "-H", hosts,
	}
	hydra := []string{"mpiexec.hydra", "-launcher", "ssh", "-launcher-exec", agent, "-iface", "eth0", "-hosts", hosts}
	for _, c := range []struct {
		name    string
		command []string
		want    string // in an error; "" for a result
	}{
		{"Open MPI", openMPI, ""},
		{"MPICH", append(slices.Clip(hydra), "-genv", "MASTER_ADDR", "node1"), ""},
		{"MPICH without an address", hydra, "mpiexec -genv MASTER_ADDR"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := exec.LookPath(c.command[0]); err != nil {
				t.Skipf("not installed: %v", err)
			}
			cmd := l.Exec(t, "host0", slices.Concat(named(l, 0), c.command, perf)...)
			cmd.Env = append(cmd.Env, key, "ALLCAST_GROUPS="+l.Groups())
			o := clitest.Finish(t, cmd)
			if c.want != "" {
				if o.Status == cli.StatusOK || !strings.Contains(o.Stderr+o.Stdout, c.want) {
					t.Errorf("status %d\n%s%s", o.Status, o.Stdout, o.Stderr)
				}
				return
			}
			var result map[string]any
			if err := json.Unmarshal([]byte(o.Stdout), &result); err != nil || o.Status != cli.StatusOK {
				t.Fatalf("status %d: %v\n%s%s", o.Status, err, o.Stdout, o.Stderr)
			}
			if result["ranks"] != 4.0 || result["wrong"] != 0.0 || result["algo"] != "mcast" {
				t.Errorf("%v", result)
			}
		})
	}
}
