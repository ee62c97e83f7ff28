//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allcast/allcast/internal/units"
)

// output is what a command left.
type output struct {
	stdout []byte
	took   time.Duration
	peak   int64 // bytes of memory
}

// A reader returns the values in the output of a command whose measurement has this name.
type reader func(name string, out output) (values, error)

// fill replaces words in braces in the name of a measurement.
func fill(name string, words ...string) string { return strings.NewReplacer(words...).Replace(name) }

// put adds a value, whose name must be new.
func (v values) put(name string, x float64) error {
	if _, ok := v[name]; ok {
		return fmt.Errorf("two results are called %q: the name of the run must tell them apart, as {size} does", name)
	}
	v[name] = x
	return nil
}

// line is a line of "allcast perf --json", or the counters of "allcast lab run --json".
type line struct {
	Op        string `json:"op"`
	Algo      string `json:"algo"`
	Requested string `json:"requested"`
	Reason    string `json:"fallback_reason"`
	Bytes     int64  `json:"bytes"`
	Time      struct {
		P50 float64 `json:"p50"`
	} `json:"time_us"`
	User      float64  `json:"user_cpu_us"`
	Sys       float64  `json:"sys_cpu_us"`
	Chunks    float64  `json:"chunks_total"`
	Copied    float64  `json:"copied_chunks"`
	Idle      *float64 `json:"idle_cpu_pct"`
	IncSums   float64  `json:"inc_sums"`
	Wrong     int64    `json:"wrong"`
	LinkBytes float64  `json:"link_bytes"`
}

// isResult tells results from counters and from the averages at the end.
func (l *line) isResult() bool { return l.Op != "" && l.Time.P50 > 0 }

// check returns an error if the result is wrong, or that of another algorithm than the requested one. Each half of a
// pair may be auto.
func (l *line) check() error {
	if l.Wrong != 0 {
		return fmt.Errorf("verification found %d wrong bytes", l.Wrong)
	}
	if !strings.Contains(l.Requested, "auto") && l.Algo != l.Requested {
		return fmt.Errorf("%s ran instead of %s", l.Algo, l.Requested)
	}
	return nil
}

// readPerf reads results of perf. {algo} is the requested algorithm. A value is the time; with a suffix, it is
// the processor time per rank (cpu), the share of copied chunks in percent (copied), or, if there is one result
// only, the bytes on all links of the lab during the whole run (link bytes).
func readPerf(name string, out output) (values, error) {
	lines, err := decode[line](out.stdout)
	if err != nil {
		return nil, err
	}
	v := make(values)
	var total float64
	for i := range lines {
		l := &lines[i]
		switch {
		case l.LinkBytes > 0:
			total = l.LinkBytes
		case l.isResult():
			if err := l.check(); err != nil {
				return nil, err
			}
			full := fill(name, "{algo}", l.Requested, "{size}", units.Size(l.Bytes).String())
			if err := v.put(full, l.Time.P50); err != nil {
				return nil, err
			}
			v[full+" cpu"] = l.User + l.Sys
			if l.Chunks > 0 {
				v[full+" copied"] = 100 * l.Copied / l.Chunks
			}
		}
	}
	if len(v) == 0 {
		return nil, errors.New("no result was printed")
	}
	if _, ok := v[name]; ok && total > 0 { // there is one result, so the bytes are its own
		v[name+" link bytes"] = total
	}
	return v, nil
}

// readAggregated reads results of perf as readPerf does. It refuses results of calls that fell back, and of calls by
// aggregators that made no sums. With the suffix idle, a value is the share of the processors' time that nothing used
// during the measurement, in percent.
func readAggregated(name string, out output) (values, error) {
	v, err := readPerf(name, out)
	if err != nil {
		return nil, err
	}
	lines, err := decode[line](out.stdout)
	if err != nil {
		return nil, err
	}
	for i := range lines {
		l := &lines[i]
		switch {
		case !l.isResult():
			continue
		case l.Reason != "":
			return nil, fmt.Errorf("%s fell back: %s", l.Requested, l.Reason)
		case strings.Contains(l.Algo, "inc") && l.IncSums == 0:
			return nil, fmt.Errorf("aggregators made no sums for %s", l.Requested)
		case l.Idle == nil:
			return nil, errors.New("the idle time of the processors is not known")
		}
		full := fill(name, "{algo}", l.Requested, "{size}", units.Size(l.Bytes).String())
		if err := v.put(full+" idle", *l.Idle); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// readPorts reads one result of perf and the counters of the lab. The values are the bytes per operation on the
// busiest link of a host, with the suffixes up and down, and on the least busy one, with least up and least down.
func readPorts(name string, out output) (values, error) {
	lines, err := decode[struct {
		line
		Iters  float64 `json:"iters"`
		Warmup float64 `json:"warmup"`
		Ports  []struct {
			Port string  `json:"port"`
			Rx   float64 `json:"rx"`
			Tx   float64 `json:"tx"`
		} `json:"ports"`
	}](out.stdout)
	if err != nil {
		return nil, err
	}
	if len(lines) != 2 || !lines[0].isResult() || len(lines[1].Ports) == 0 {
		return nil, errors.New("the output is not one result of perf and the counters of the lab")
	}
	r := &lines[0]
	if r.Wrong != 0 || r.Algo != r.Requested || r.Reason != "" {
		return nil, fmt.Errorf("%d wrong bytes by %s instead of %s: %s", r.Wrong, r.Algo, r.Requested, r.Reason)
	}
	var up, down []float64
	for _, p := range lines[1].Ports {
		if strings.HasPrefix(p.Port, "host") {
			up, down = append(up, p.Rx/(r.Iters+r.Warmup)), append(down, p.Tx/(r.Iters+r.Warmup))
		}
	}
	if len(up) == 0 {
		return nil, errors.New("the lab counted no port of a host")
	}
	return values{
		name: r.Time.P50, name + " up": slices.Max(up), name + " down": slices.Max(down),
		name + " least up": slices.Min(up), name + " least down": slices.Min(down),
	}, nil
}

// readPeers reads the times of bench/peers.
func readPeers(name string, out output) (values, error) {
	lines, err := decode[struct {
		Op         string  `json:"op"`
		Bytes      int64   `json:"bytes"`
		Contestant string  `json:"contestant"`
		Time       float64 `json:"time_us"`
	}](out.stdout)
	if err != nil {
		return nil, err
	}
	v := make(values)
	for _, l := range lines {
		full := fill(name, "{op}", l.Op, "{size}", units.Size(l.Bytes).String(), "{contestant}", l.Contestant)
		if err := v.put(full, l.Time); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// readReceive reads the rates of bench/receive in GB/s, and with the suffix repaired the repaired share in percent.
func readReceive(name string, out output) (values, error) {
	lines, err := decode[struct {
		Configuration string  `json:"configuration"`
		Rate          float64 `json:"GBps"`
		Repaired      float64 `json:"repaired_pct"`
	}](out.stdout)
	if err != nil {
		return nil, err
	}
	v := make(values)
	for _, l := range lines {
		full := fill(name, "{configuration}", l.Configuration)
		if err := v.put(full, l.Rate); err != nil {
			return nil, err
		}
		v[full+" repaired"] = l.Repaired
	}
	return v, nil
}

// readJoin reads the table of bench/join. {ranks} is the number of ranks. A value is the time in s; with the suffix
// bytes, it is what rank 0 sent and received.
func readJoin(name string, out output) (values, error) {
	v := make(values)
	var head []string
	for text := range strings.Lines(string(out.stdout)) {
		cells := strings.Fields(text)
		if head == nil {
			head = cells
			continue
		}
		if len(cells) != len(head) {
			return nil, fmt.Errorf("the line %q has %d columns, not %d", strings.TrimSpace(text), len(cells), len(head))
		}
		row := make(map[string]float64)
		for i, cell := range cells {
			x, err := strconv.ParseFloat(cell, 64)
			if err != nil {
				return nil, fmt.Errorf("column %s: %w", head[i], err)
			}
			row[head[i]] = x
		}
		if row["ranks"] == 0 || row["time_s"] == 0 || row["sent_0"] == 0 {
			return nil, fmt.Errorf("the table has the columns %v, but ranks, time_s and sent_0 are needed", head)
		}
		full := fill(name, "{ranks}", fmt.Sprint(row["ranks"]))
		if err := v.put(full, row["time_s"]); err != nil {
			return nil, err
		}
		v[full+" bytes"] = row["sent_0"] + row["received_0"]
	}
	return v, nil
}

// readAuto reads the ratios of bench/auto: the time of auto over that of the best fixed choice.
func readAuto(name string, out output) (values, error) {
	lines, err := decode[struct {
		Network string `json:"network"`
		Op      string `json:"op"`
		Bytes   int64  `json:"bytes"`
		Ratio   spread `json:"ratio"`
	}](out.stdout)
	if err != nil {
		return nil, err
	}
	v := make(values)
	for _, l := range lines {
		full := fill(name, "{network}", l.Network, "{op}", l.Op, "{size}", units.Size(l.Bytes).String())
		if err := v.put(full, l.Ratio.Median); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// readSim checks the result of a simulation. The values are what the command itself took: minutes, and with the
// suffix memory GiB.
func readSim(name string, out output) (values, error) {
	lines, err := decode[struct {
		Verified bool  `json:"verified"`
		Wrong    int64 `json:"wrong"`
	}](out.stdout)
	if err != nil {
		return nil, err
	}
	if len(lines) != 1 || !lines[0].Verified || lines[0].Wrong != 0 {
		return nil, errors.New("the simulated operation was not verified, or delivered wrong bytes")
	}
	return values{name: out.took.Minutes(), name + " memory": float64(out.peak) / (1 << 30)}, nil
}

// decode returns the JSON objects in the output.
func decode[T any](out []byte) (all []T, err error) {
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var x T
		switch err := d.Decode(&x); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("the output is no JSON: %w", err)
		}
		all = append(all, x)
	}
}
