//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestFiguresCompareValuesOfTheSameRound(t *testing.T) {
	r := &row{
		name: "r", runs: []measurement{perf("plain", "allgather")},
		figures: []figure{
			over("twice / plain", "twice", "plain").most(1.5),
			over("plain / the faster", "plain", "twice", "slow").least(0.5),
			{name: "halved", of: "plain", scale: 2, unit: "us"},
		},
	}
	rounds := []values{
		{"plain": 1, "twice": 2, "slow": 1},
		{"plain": 10, "twice": 20, "slow": 90},
		{"plain": 100, "twice": 300, "slow": 900},
	}
	res := newResult(r)
	if err := res.compare(r, rounds); err != nil {
		t.Fatal(err)
	}
	want := []figureResult{
		{"twice / plain", "x", spread{2, 2, 3}, "at most 1.5", false},
		{"plain / the faster", "x", spread{0.5, 1. / 3, 0.5}, "at least 0.5", true},
		{"halved", "us", spread{5, 0.5, 50}, "", true},
	}
	for i, f := range res.Figures {
		if f != want[i] {
			t.Errorf("figure %d is %+v, not %+v", i, f, want[i])
		}
	}
	var out bytes.Buffer
	if err := res.print(&out, true); err != nil {
		t.Fatal(err)
	}
	var back result
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || len(back.Figures) != 3 || back.Rounds != 3 {
		t.Errorf("JSON has %+v, %v", back, err)
	}
	out.Reset()
	if err := res.print(&out, false); err != nil || !strings.Contains(out.String(), "2.00 (2.00-3.00)   x") {
		t.Errorf("text is %q, %v", out.String(), err)
	}
	if s := res.markdown(); !strings.Contains(s, "| twice / plain | 2.00 (2.00-3.00) x | at most 1.5 | missed |") {
		t.Errorf("markdown is %q", s)
	}
}

func TestFiguresNeedTheirValues(t *testing.T) {
	for name, f := range map[string]figure{
		"no value": over("f", "absent", "plain"),
		"no base":  over("f", "plain", "absent"),
		"base 0":   over("f", "plain", "zero"),
	} {
		if v, err := f.values([]values{{"plain": 1, "zero": 0}}); err == nil {
			t.Errorf("%s: got %v", name, v)
		}
	}
}

func TestWrap(t *testing.T) {
	word := strings.Repeat("x", 30)
	text := strings.Repeat(word+" ", 4)
	if got, want := wrap(text, "", ""), word+" "+word+" "+word+"\n"+word+"\n"; got != want {
		t.Errorf("got %q, not %q", got, want)
	}
	if got, want := wrap(text+text, " \\", "  "),
		word+" "+word+" "+word+" \\\n  "+word+" "+word+" "+word+" \\\n  "+word+" "+word+"\n"; got != want {
		t.Errorf("got %q, not %q", got, want)
	}
}

func TestSpread(t *testing.T) {
	for text, v := range map[string][]float64{
		"1.50 (1.00-2.00)": {2, 1}, "2.00": {2}, "20.0 (1.0-30.0)": {30, 1, 20}, "200 (100-300)": {100, 300, 200},
	} {
		if got := newSpread(v).String(); got != text {
			t.Errorf("%v is %q, not %q", v, got, text)
		}
	}
}

func TestReadPerf(t *testing.T) {
	const line = `{"op":"allgather","algo":"ring","requested":"ring","ranks":4,"bytes":4096,"time_us":{"p50":5},` +
		`"user_cpu_us":3,"sys_cpu_us":1,"chunks_total":200,"copied_chunks":3,"wrong":0}`
	other := strings.ReplaceAll(line, "ring", "mcast")
	v, err := readPerf("P 4, {algo} {size}", output{stdout: []byte(line + "\n" + other + "\n" + `{"average":{}}`)})
	if err != nil || v["P 4, ring 4K"] != 5 || v["P 4, mcast 4K cpu"] != 4 || v["P 4, mcast 4K copied"] != 1.5 {
		t.Errorf("got %v, %v", v, err)
	}
	v, err = readPerf("a", output{stdout: []byte(line + "\n" + `{"topology":"star:2","link_bytes":7}`)})
	if err != nil || v["a"] != 5 || v["a link bytes"] != 7 {
		t.Errorf("with counters: %v, %v", v, err)
	}
	for what, text := range map[string]string{
		"nothing": "", "averages only": `{"average":{}}`, "no JSON": "allcast: up", "same name": line + "\n" + line,
		"wrong bytes":       strings.Replace(line, `"wrong":0`, `"wrong":1`, 1),
		"another algorithm": strings.Replace(line, `"algo":"ring"`, `"algo":"bruck"`, 1),
	} {
		if v, err := readPerf("{algo}", output{stdout: []byte(text)}); err == nil {
			t.Errorf("%s became %v", what, v)
		}
	}
}

func TestReadInNetwork(t *testing.T) {
	const result = `{"op":"reduce-scatter","algo":"inc","requested":"inc","bytes":1024,"iters":8,"warmup":2,` +
		`"time_us":{"p50":5},"wrong":0,"fallback_reason":"","idle_cpu_pct":12.5,"inc_sums":4}`
	const counters = `{"topology":"star:2","link_bytes":7,"ports":[{"switch":"leaf0","port":"host0","rx":100,"tx":50},` +
		`{"switch":"leaf0","port":"host1","rx":90,"tx":60},{"switch":"leaf0","port":"spine0","rx":900,"tx":600}]}`
	v, err := readPorts("r", output{stdout: []byte(result + "\n" + counters)})
	if err != nil || v["r up"] != 10 || v["r down"] != 6 || v["r"] != 5 ||
		v["r least up"] != 9 || v["r least down"] != 5 {
		t.Errorf("ports: %v, %v", v, err)
	}
	for what, text := range map[string]string{
		"no counters": result, "no result": counters, "no JSON": "up",
		"no host":           result + strings.ReplaceAll(counters, "host", "spine"),
		"another algorithm": strings.Replace(result, `"algo":"inc"`, `"algo":"ring"`, 1) + counters,
		"a fallback":        strings.Replace(result, `reason":"`, `reason":"lost`, 1) + counters,
		"wrong bytes":       strings.Replace(result, `"wrong":0`, `"wrong":1`, 1) + counters,
	} {
		if v, err := readPorts("r", output{stdout: []byte(text)}); err == nil {
			t.Errorf("%s became %v", what, v)
		}
	}
	v, err = readAggregated("x, {algo}", output{stdout: []byte(result)})
	if err != nil || v["x, inc"] != 5 || v["x, inc idle"] != 12.5 {
		t.Errorf("idle: %v, %v", v, err)
	}
	for what, text := range map[string]string{
		"no output":  "",
		"a fallback": strings.Replace(result, `reason":"`, `reason":"lost`, 1),
		"no sums":    strings.Replace(result, `"inc_sums":4`, `"inc_sums":0`, 1),
		"no idle":    strings.Replace(result, `12.5`, `null`, 1),
		"another":    strings.Replace(result, `"algo":"inc"`, `"algo":"ring"`, 1),
	} {
		if v, err := readAggregated("{algo}", output{stdout: []byte(text)}); err == nil {
			t.Errorf("%s became %v", what, v)
		}
	}
}

func TestReadTools(t *testing.T) {
	v, err := readPeers("{op} {size} {contestant}", output{stdout: []byte(
		`{"op":"broadcast","bytes":1,"contestant":"x","time_us":3}
		{"op":"broadcast","bytes":1024,"contestant":"x","time_us":4}`,
	)})
	if err != nil || v["broadcast 1 x"] != 3 || v["broadcast 1K x"] != 4 {
		t.Errorf("peers: %v, %v", v, err)
	}
	const rate = `{"configuration":"tcp","GBps":2.5,"repaired_pct":0.25}`
	v, err = readReceive("{configuration}", output{stdout: []byte(rate)})
	if err != nil || v["tcp"] != 2.5 || v["tcp repaired"] != 0.25 {
		t.Errorf("receive: %v, %v", v, err)
	}
	const ratio = `{"network":"local:8","op":"allgather","bytes":4096,"ratio":{"median":1.05,"min":1,"max":2}}`
	v, err = readAuto("{network} {op} {size}", output{stdout: []byte(ratio)})
	if err != nil || v["local:8 allgather 4K"] != 1.05 {
		t.Errorf("auto: %v, %v", v, err)
	}
	const table = "  ranks  time_s  sent_0  received_0\n     16    0.25     100  200\n     64     0.5     400  500\n"
	v, err = readJoin("P {ranks}", output{stdout: []byte(table)})
	if err != nil || v["P 16"] != 0.25 || v["P 64 bytes"] != 900 {
		t.Errorf("join: %v, %v", v, err)
	}
	sim := output{stdout: []byte(`{"verified":true,"wrong":0}`), took: 90 * time.Second, peak: 1 << 29}
	v, err = readSim("s", sim)
	if err != nil || v["s"] != 1.5 || v["s memory"] != 0.5 {
		t.Errorf("sim: %v, %v", v, err)
	}
	for _, bad := range []struct {
		what, text string
		read       reader
	}{
		{"peers, no JSON", "x", readPeers},
		{"receive, no JSON", "x", readReceive},
		{"join, no number", "ranks time_s sent_0\n16 x 3\n", readJoin},
		{"join, other columns", "ranks time sent_0\n16 1 3\n", readJoin},
		{"join, missing cell", "ranks time_s sent_0\n16 3\n", readJoin},
		{"sim, not verified", `{"verified":false}`, readSim},
		{"sim, wrong bytes", `{"verified":true,"wrong":1}`, readSim},
		{"sim without result", "", readSim},
	} {
		if v, err := bad.read("a", output{stdout: []byte(bad.text)}); err == nil {
			t.Errorf("%s became %v", bad.what, v)
		}
	}
}

func TestPage(t *testing.T) {
	page := "before\n" + sectionStart + sectionEnd + "after\n"
	for _, step := range []struct{ name, text string }{{"a", "one\n"}, {"b", "two\n"}, {"a", "three\n"}} {
		var err error
		if page, err = withRow(page, step.name, step.text); err != nil {
			t.Fatal(err)
		}
	}
	want := "before\n<!-- scale -->\n<!-- scale: a -->\n\nthree\n\n<!-- end of row -->\n" +
		"<!-- scale: b -->\n\ntwo\n\n<!-- end of row -->\n<!-- end of scale -->\nafter\n"
	if page != want {
		t.Errorf("page is\n%s\nnot\n%s", page, want)
	}
	for _, bad := range []string{"", sectionStart, sectionStart + "<!-- scale: a -->\n" + sectionEnd} {
		if got, err := withRow(bad, "a", "text"); err == nil {
			t.Errorf("%q became %q", bad, got)
		}
	}
}

// Every row can be measured: names are unique, and each figure names values that the row's runs can have.
func TestRows(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range rows {
		if seen[r.name] || r.about == "" || len(r.runs) == 0 || len(r.figures) == 0 {
			t.Errorf("row %q exists twice or is incomplete", r.name)
		}
		seen[r.name] = true
		for _, c := range r.runs {
			if !strings.HasPrefix(c.line, "allcast ") && !strings.HasPrefix(c.line, "go run ./") {
				t.Errorf("row %q: a reader cannot repeat %q", r.name, c.line)
			}
		}
		for _, f := range r.figures {
			for _, name := range append([]string{f.of}, f.to...) {
				if !r.canMeasure(name) {
					t.Errorf("row %q: no run measures %q", r.name, name)
				}
			}
		}
	}
}

// canMeasure says whether a value of this name may come from one of the row's runs.
func (r *row) canMeasure(name string) bool {
	known := make(values)
	maps.Copy(known, r.given)
	if r.derive != nil {
		r.derive(known)
	}
	if _, ok := known[name]; ok {
		return true
	}
	return slices.ContainsFunc(r.runs, func(c measurement) bool {
		pattern := regexp.MustCompile(`\\\{[a-z]+\\\}`).ReplaceAllString(regexp.QuoteMeta(c.name), `[^ ]+`)
		return regexp.MustCompile("^" + pattern + "( .+)?$").MatchString(name)
	})
}

func TestParse(t *testing.T) {
	cfg, err := parse([]string{"-rounds", "7", "protected", "chains"}, io.Discard)
	if err != nil || cfg.rounds != 7 || len(cfg.rows) != 2 || cfg.rows[0].name != "protected" {
		t.Errorf("got %+v, %v", cfg, err)
	}
	if cfg, err := parse(nil, io.Discard); err != nil || len(cfg.rows) != len(rows) || cfg.rounds < 5 {
		t.Errorf("without arguments: %+v, %v", cfg, err)
	}
	for _, args := range [][]string{{"absent"}, {"-rounds", "0"}, {"-unknown"}} {
		if cfg, err := parse(args, io.Discard); err == nil || errors.Is(err, flag.ErrHelp) {
			t.Errorf("%v: %+v, %v", args, cfg, err)
		}
	}
}
