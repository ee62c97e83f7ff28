package paper

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/allcast/allcast/internal/lab"
)

// LabRun is a part of the output of "allcast perf", for one algorithm.
type LabRun struct {
	Op       string `json:"op"`
	Algo     string `json:"algo"`
	Ranks    int    `json:"ranks"`
	Bytes    int64  `json:"bytes"`
	Wrong    int64  `json:"wrong"`
	Repaired int64  `json:"repaired_bytes"`
	Time     struct {
		Min float64 `json:"min"`
		P50 float64 `json:"p50"`
	} `json:"time_us"`
}

// LabReport is the output of a lab in which "allcast perf" ran.
type LabReport struct {
	Runs     []LabRun
	Counters lab.Counters // of all runs together
	Text     []byte       // the output itself, for "allcast lab report"
}

// RunInLab builds a network from namespaces and runs "allcast perf" on all of its hosts. Program is the path of
// allcast, network are flags of "allcast lab run", and perf the arguments of "allcast perf".
func RunInLab(ctx context.Context, program string, network, perf []string) (*LabReport, error) {
	args := append([]string{"lab", "run", "--json"}, network...)
	args = append(append(args, "--", "allcast", "perf", "--json"), perf...)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // the lab takes its network down
	var trouble bytes.Buffer
	cmd.Stderr = &trouble
	// Without calibration, whose traffic would count.
	cmd.Env = append(os.Environ(), "ALLCAST_TIMEOUT=120s", "ALLCAST_CALIBRATE=off")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("allcast perf %v in a lab: %w: %s%s", perf, err, out, trouble.Bytes())
	}
	r, err := parseLab(out)
	if err != nil {
		return nil, fmt.Errorf("allcast perf %v in a lab: %w", perf, err)
	}
	return r, nil
}

// parseLab reads one line per algorithm, and the counters of all ports in the last line.
func parseLab(out []byte) (*LabReport, error) {
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	r := &LabReport{Text: out}
	for i, line := range lines {
		if i == len(lines)-1 {
			break
		}
		var m LabRun
		if err := json.Unmarshal(line, &m); err != nil {
			return nil, err
		}
		if m.Wrong != 0 {
			return nil, fmt.Errorf("%s by %s: %d bytes were wrong", m.Op, m.Algo, m.Wrong)
		}
		r.Runs = append(r.Runs, m)
	}
	if len(r.Runs) == 0 {
		return nil, errors.New("it printed no result")
	}
	return r, json.Unmarshal(lines[len(lines)-1], &r.Counters)
}

// labName returns a name for a lab, so that two reproductions on one machine do not meet.
func labName() string { return fmt.Sprintf("p%d", os.Getpid()) }

// labRate is the rate of links in labs: one machine keeps up with it.
const labRate = "100mbit"

// labPairTopology is the network of Appendix B in the lab.
const labPairTopology = "star:4"

// labPairs runs Allgather and Reduce-Scatter at once, on real packets with aggregators.
func labPairs(ctx context.Context, e *Env) ([]LabRun, error) {
	return cached(e, "lab pairs", func() ([]LabRun, error) {
		e.progress(0.9, "Allgather and Reduce-Scatter in the lab")
		r, err := RunInLab(ctx, e.Self,
			[]string{"--name", labName(), "--topology", labPairTopology, "--rate", labRate, "--inc"},
			[]string{"allgather+reduce-scatter", "--algo", "ring+ring,mcast+inc", "-b", "1M", "-n", "5", "-w", "1"})
		if err != nil {
			return nil, err
		}
		return r.Runs, nil
	})
}
