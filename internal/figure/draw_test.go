package figure

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// examples have every style, scale and kind of point.
func examples() map[string]*Figure {
	line := func(name string, data ...Point) Series { return Series{Name: name, Style: Line, Data: data} }
	bars := func(name string, values ...float64) Series {
		s := Series{Name: name, Style: Bars}
		for i, y := range values {
			s.Data = append(s.Data, Point{X: float64(i), Y: y})
		}
		return s
	}
	paper := func(s Series) Series { s.Paper = true; return s }
	return map[string]*Figure{
		"lines": {
			Title: "Throughput by size of the send buffer, 188 nodes",
			X:     Axis{Label: "send buffer, bytes", Log: 2}, Y: Axis{Label: "throughput, Gbit/s", Log: 10},
			Series: []Series{
				line("multicast", Point{X: 4096, Y: 1.5}, Point{X: 65536, Y: 20, Low: 15, High: 22}, Point{X: 1 << 24, Y: 52}),
				line("ring", Point{X: 4096, Y: 0.3}, Point{X: 65536, Y: 9, Low: 4, High: 16}, Point{X: 1 << 24, Y: 51}),
				line("k-nomial tree", Point{X: 4096, Y: 0.9}, Point{X: 65536, Y: 6}, Point{X: 1 << 24, Y: 21}),
				{Name: "ring at 128 KiB", Style: Points, Paper: true, Data: []Point{{X: 1 << 17, Y: 48}, {X: 1 << 18, Y: 48}}},
			},
		},
		"bars": {
			Title: "Link traffic of Allgather on 1024 nodes",
			X:     Axis{Label: "algorithm", Names: []string{"linear", "ring", "recursive doubling", "multicast"}},
			Y:     Axis{Label: "block-link traversals"},
			Series: []Series{
				bars("counted on the graph", 5732352, 2234232, 5732352, 1118208),
				paper(bars("the authors' script", 4143104, 2287428, 4143104, 1147904)),
			},
		},
		"long-names": {
			Title: "A title that is so long that it needs more than one line on a plot of this width, with µ and × in it",
			X: Axis{Names: []string{
				"Broadcast/k-nomial-with-a-long-name", "Broadcast/binary-with-a-long-name", "Allgather/ring-with-a-long-name",
				"Allgather/recursive-doubling", "multicast, unencumbered", "x1", "x2",
			}},
			Y: Axis{Label: "coefficient of variation, %", Log: 10},
			Series: []Series{
				bars("multicast <b>&amp; more", 0.2, 0.3, 1, 9),
				bars("background traffic of other jobs on all links of the upper tier, with routes by a hash", 2, 11),
				{Name: "noise", Style: Points, Data: []Point{{X: 0, Y: 5}, {X: 2, Y: 0.05, Low: 0.02, High: 0.3}}},
			},
		},
		"narrow": {
			Title: "Share of data movement", X: Axis{Label: "nodes", Log: 2}, Y: Axis{Label: "share of the time, %"},
			Series: []Series{
				line("64 KiB", Point{X: 16, Y: 98.2}, Point{X: 64, Y: 99.1}, Point{X: 188, Y: 99.7}),
				paper(line("from 16 nodes on", Point{X: 16, Y: 99}, Point{X: 188, Y: 99})),
			},
		},
		"one-point": {
			Title: "One point", X: Axis{Label: "x", Log: 10}, Y: Axis{Label: "y, −5 to 5"},
			Series: []Series{{Name: "only", Style: Points, Data: []Point{{X: 3, Y: -4}}}},
		},
	}
}

func svgOf(t *testing.T, f *Figure) string {
	t.Helper()
	var b bytes.Buffer
	if err := Draw(&b, f); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestDrawings(t *testing.T) {
	dir := os.Getenv("ALLCAST_FIGURES") // to look at them
	for name, f := range examples() {
		svg := svgOf(t, f)
		if dir != "" {
			if err := os.WriteFile(filepath.Join(dir, name+".svg"), []byte(svg), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		text := textOf(t, svg)
		for _, want := range []string{f.X.Label, f.Y.Label} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no axis label %q", name, want)
			}
		}
		for _, s := range f.Series {
			first, _, _ := strings.Cut(s.Name, " ")
			if s.Paper {
				first = "paper: " + first
			}
			if !strings.Contains(text, first) {
				t.Errorf("%s: %q is not in the legend", name, s.Name)
			}
		}
		if strings.Contains(svg, " id=") || strings.Contains(svg, `<svg width`) || strings.Contains(svg, "NaN") {
			t.Errorf("%s has an id, a fixed width or NaN", name)
		}
		if again := svgOf(t, f); again != svg {
			t.Errorf("%s: two drawings differ", name)
		}
	}
}

// textOf returns all text of an SVG, which must be well-formed.
func textOf(t *testing.T, svg string) string {
	t.Helper()
	var all strings.Builder
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		if data, ok := token.(xml.CharData); ok {
			all.Write(data)
		}
	}
}

func TestFigureSurvivesJSON(t *testing.T) {
	for name, f := range examples() {
		text, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Read(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(f, back) {
			t.Errorf("%s: %+v becomes %+v", name, f, back)
		}
		if svgOf(t, f) != svgOf(t, back) {
			t.Errorf("%s: the drawing differs", name)
		}
	}
}

func TestReadRefusesOtherData(t *testing.T) {
	for _, text := range []string{"", "[]", `{"title":"x","colour":1}`, `{"title":"x"} {}`} {
		if f, err := Read(strings.NewReader(text)); err == nil {
			t.Errorf("%q is read as %+v", text, f)
		}
	}
}

func TestBadData(t *testing.T) {
	good := func() *Figure {
		return &Figure{
			Title: "t", X: Axis{Label: "x", Names: []string{"a", "b"}}, Y: Axis{Label: "y", Log: 10},
			Series: []Series{{Name: "s", Style: Bars, Data: []Point{{X: 0, Y: 1}, {X: 1, Y: 2, Low: 1, High: 3}}}},
		}
	}
	if err := Draw(io.Discard, good()); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*Figure){
		"not a finite number":        func(f *Figure) { f.Series[0].Data[0].Y = math.NaN() },
		"X is +Inf":                  func(f *Figure) { f.Series[0].Data[0].X = math.Inf(1) },
		"positive values only":       func(f *Figure) { f.Series[0].Data[0].Y = 0 },
		"Y is -1":                    func(f *Figure) { f.Series[0].Data[1].Low = -1 },
		"range is empty":             func(f *Figure) { f.Series[0].Data[1].Low = 4 },
		"positions 0, 1, ... only":   func(f *Figure) { f.Series[0].Data[0].X = 2 },
		"X is 0.5":                   func(f *Figure) { f.Series[0].Data[0].X = 0.5 },
		"bars need names":            func(f *Figure) { f.X.Names = nil },
		"a second bar for \"a\"":     func(f *Figure) { f.Series[0].Data[1].X = 0 },
		"no name for the legend":     func(f *Figure) { f.Series[0].Name = "" },
		"no points":                  func(f *Figure) { f.Series[0].Data = nil },
		"no series":                  func(f *Figure) { f.Series = nil },
		"unknown style":              func(f *Figure) { f.Series[0].Style = "pie" },
		"scale of base 3":            func(f *Figure) { f.Y.Log = 3 },
		"names and a logarithmic":    func(f *Figure) { f.X.Log = 2 },
		"the Y axis has no label":    func(f *Figure) { f.Y.Label = "" },
		`figure "t": series 1 ("s")`: func(f *Figure) { f.Series[0].Data[0].Y = -1 },
	} {
		f := good()
		spoil(f)
		var out bytes.Buffer
		if err := Draw(&out, f); err == nil || !strings.Contains(err.Error(), want) || out.Len() > 0 {
			t.Errorf("want %q, got %v and %d bytes", want, err, out.Len())
		}
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		base      int
		want      string
	}{
		{0, 1, 0, "0 0.2 0.4 0.6 0.8 1"},
		{0, 5.9e6, 0, "0 1 M 2 M 3 M 4 M 5 M"},
		{97.9, 100.1, 0, "98 98.5 99 99.5 100"},
		{-4, 4, 0, "−4 −2 0 2 4"},
		{1, 16, 2, "1 2 4 8 16"},
		{1024, 1 << 20, 2, "1024 4096 16384 65536 262144 1 Mi"},
		{0.01, 1e6, 10, "0.01 1 100 10 k 1 M"},
		{8, 120, 10, "10 100 20 50"},
		{30, 60, 10, "30 35 40 45 50 55 60"},
	} {
		var labels []string
		ticks := linearTicks{}.Ticks(c.low, c.high)
		if c.base != 0 {
			ticks = logTicks{base: c.base}.Ticks(c.low, c.high)
		}
		for _, tick := range ticks {
			if tick.Label != "" {
				labels = append(labels, tick.Label)
			}
			if tick.Value < c.low-1e-9*math.Abs(c.low) || tick.Value > c.high+1e-9*math.Abs(c.high) {
				t.Errorf("%v to %v: tick at %v", c.low, c.high, tick.Value)
			}
		}
		if got := strings.Join(labels, " "); got != c.want {
			t.Errorf("%v to %v, base %d: %s, want %s", c.low, c.high, c.base, got, c.want)
		}
	}
}

func TestWholeNumbersHaveNoTicksBetween(t *testing.T) {
	if n := len(linearTicks{whole: true}.Ticks(-0.1, 3.1)); n != 4 {
		t.Errorf("%d ticks, want 0 to 3", n)
	}
}

func TestBarsStandAroundTheirName(t *testing.T) {
	bar := func(x float64) Series { return Series{Style: Bars, Data: []Point{{X: x, Y: 1}}} }
	series := []Series{bar(0), bar(0), {Style: Points}, bar(1)}
	got := arrange(series, make([]look, len(series)))
	want := []map[float64]float64{{0: -0.4}, {0: 0}, {1: 0.8}}
	if len(got) != len(want) {
		t.Fatalf("%d series of bars", len(got))
	}
	for i, b := range got {
		for x, left := range want[i] {
			if math.Abs(b.left[x]-left) > 1e-9 || b.width != 0.4 {
				t.Errorf("series %d: bar at %v starts at %v and is %v wide", i, x, b.left[x], b.width)
			}
		}
	}
}

func TestUnitsOfTicks(t *testing.T) {
	for _, c := range []struct {
		axis  Axis
		value float64
		want  string
	}{
		{Axis{Label: "send buffer, bytes", Log: 2}, 64 << 10, "64 KiB"},
		{Axis{Label: "send buffer, bytes", Log: 2}, 512, "512 B"},
		{Axis{Label: "send buffer, bytes", Log: 10}, 5e10, "50 GB"},
		{Axis{Label: "threads", Log: 2}, 64, "64"},
		{Axis{Label: "buffer, KiB", Log: 2}, 65536, "65536"},
		{Axis{Label: "time, ms"}, 0.00002, "2e−05"},
	} {
		if got := formatNumber(c.value, c.axis.Log, c.axis.unit()); got != c.want {
			t.Errorf("%s: %v is written %q, want %q", c.axis.Label, c.value, got, c.want)
		}
	}
}
