package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/allcast/allcast/internal/topology"
)

// networks covers stars, leaves without hosts, one pod, several pods, and networks so large that the
// hosts of a leaf share one bar.
var networks = []string{
	"star:1", "star:7", "star:300", "fat-tree:5,4,2", "fat-tree:16,4,2", "fat-tree:188,12,6", "fat-tree:300,20,3",
	"fat-tree3:6,4", "fat-tree3:2,4", "fat-tree3:100,8", "fat-tree3:1024,32",
}

// The page is self-contained: it loads no resources, runs no scripts and has no links.
func TestPageIsWhole(t *testing.T) {
	outside := regexp.MustCompile(`(?i)https?:|//|src=|href|url\(|@import|<script|<link|<iframe|\son[a-z]+=`)
	for _, spec := range networks {
		page := render(t, somePage(t, spec))
		if m := outside.FindString(page); m != "" {
			t.Errorf("%s: the page contains %q", spec, m)
		}
		for _, bad := range []string{"NaN", "Inf", "ZgotmplZ", "<b>&", "no value"} {
			if strings.Contains(page, bad) {
				t.Errorf("%s: the page contains %q", spec, bad)
			}
		}
		for _, want := range []string{
			"<!DOCTYPE html>", "prefers-color-scheme: dark", "@media print", "A title &lt;&amp;&gt;", "</html>",
		} {
			if !strings.Contains(page, want) {
				t.Errorf("%s: the page lacks %q", spec, want)
			}
		}
		checkBalanced(t, spec, page)
	}
}

// checkBalanced parses the body of the page as XML, to check that its tags are balanced.
func checkBalanced(t *testing.T, spec, page string) {
	t.Helper()
	_, body, _ := strings.Cut(page, "<body>")
	body = strings.ReplaceAll("<body>"+strings.TrimSuffix(strings.TrimSpace(body), "</html>"), "<br>", "<br/>")
	d := xml.NewDecoder(strings.NewReader(body))
	d.Entity = xml.HTMLEntity
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Errorf("%s: %v", spec, err)
			return
		}
	}
}

var drawnLink = regexp.MustCompile(`<path class="c(\d+)(?: up)?" data-link="(\d+)(?:-(\d+))?" ` +
	`d="([^"]*)"(?: stroke-width="[^"]*")?><title>([^<]*)</title>`)

// Each direction of each cable is drawn once per run, in the colour of its bytes and with a title.
func TestEveryLinkIsDrawnOnce(t *testing.T) {
	for _, spec := range networks {
		p := somePage(t, spec)
		s := newScale(p.Runs)
		pictures := strings.Split(render(t, p), `<svg class="tree"`)[1:]
		if len(pictures) != len(p.Runs) {
			t.Fatalf("%s: %d pictures, want %d", spec, len(pictures), len(p.Runs))
		}
		for i, picture := range pictures {
			drawn := make([]int, len(p.Graph.Links))
			for _, m := range drawnLink.FindAllStringSubmatch(picture, -1) {
				first, _ := strconv.Atoi(m[2])
				last := first
				if m[3] != "" {
					last, _ = strconv.Atoi(m[3])
				}
				busiest := uint64(0)
				for l := first; l <= last; l += 2 { // a bar shows links of one direction
					drawn[l]++
					busiest = max(busiest, p.Runs[i].LinkBytes[l])
				}
				if want := strconv.Itoa(s.colour(busiest)); m[1] != want {
					t.Errorf("%s: link %s has colour %s, want %s", spec, m[2], m[1], want)
				}
				if m[3] == "" && m[5] != linkName(p.Graph, topology.LinkID(first))+": "+exact(busiest) {
					t.Errorf("%s: link %s has the title %q", spec, m[2], m[5])
				}
				if !strings.Contains(m[5], grouped(busiest)) {
					t.Errorf("%s: link %s has the title %q, want %d bytes", spec, m[2], m[5], busiest)
				}
			}
			for l, n := range drawn {
				if n != 1 {
					t.Fatalf("%s: link %d is drawn %d times", spec, l, n)
				}
			}
		}
	}
}

var dataValue = regexp.MustCompile(`<data value="(\d+)"`)

func TestTotalsAreTheSums(t *testing.T) {
	for _, spec := range networks {
		p := somePage(t, spec)
		rows := strings.Split(tableOf(t, render(t, p), "totals"), "<tr>")[2:]
		for i, row := range rows {
			r := &p.Runs[i]
			var sum uint64
			for _, n := range r.LinkBytes {
				sum += n
			}
			want := []uint64{sum}
			if r.PayloadLinkBytes > 0 {
				want = append(want, r.PayloadLinkBytes, r.Bound)
			}
			want = append(want, r.LinkBytes[len(r.LinkBytes)-1]) // the last link carries the most bytes
			var got []uint64
			for _, m := range dataValue.FindAllStringSubmatch(row, -1) {
				n, _ := strconv.ParseUint(m[1], 10, 64)
				got = append(got, n)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s, %s: the table has %d, want %d", spec, r.Name, got, want)
			}
		}
		if len(rows) != 2 || !strings.Contains(rows[0], "1.00×") || !strings.Contains(rows[1], "2.00×") {
			t.Errorf("%s: wrong ratios in\n%s", spec, rows)
		}
		if !strings.Contains(rows[1], "12 345") || !strings.Contains(rows[1], "1.23 ms") {
			t.Errorf("%s: repaired chunks or time are missing in\n%s", spec, rows[1])
		}
	}
}

func TestSamePageSameBytes(t *testing.T) {
	for _, spec := range networks {
		first, second := render(t, somePage(t, spec)), render(t, somePage(t, spec))
		if first != second {
			t.Errorf("%s: two pages of the same runs differ", spec)
		}
	}
}

// All nodes lie inside the picture, and nodes of one level do not overlap.
func TestNothingOverlaps(t *testing.T) {
	for _, spec := range networks {
		l := newLayout(parse(t, spec))
		for k, nodes := range l.nodes {
			for i, n := range nodes {
				b := l.boxes[n]
				if b.x < marginLeft-1 || b.x+b.w > drawingWidth || b.y < 0 || b.bottom() > l.height || b.w <= 0 {
					t.Errorf("%s: %s at %+v is outside the picture", spec, l.g.NodeName(n), b)
				}
				if i > 0 && b.x+0.15 < l.boxes[nodes[i-1]].x+l.boxes[nodes[i-1]].w && topology.Level(k) != topology.HostLevel {
					t.Errorf("%s: %s overlaps its neighbour", spec, l.g.NodeName(n))
				}
			}
		}
	}
}

func TestBadInput(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*Page)
		want string
	}{
		{"no network", func(p *Page) { p.Graph = nil }, "no network"},
		{"no runs", func(p *Page) { p.Runs = nil }, "no runs"},
		{"many runs", func(p *Page) { p.Runs = make([]Run, maxRuns+1) }, "at most 16"},
		{"no name", func(p *Page) { p.Runs[1].Name = "" }, "no name"},
		{
			"too few links", func(p *Page) { p.Runs[1].LinkBytes = p.Runs[1].LinkBytes[1:] },
			"47 link directions; fat-tree:16,4,2 has 48",
		},
		{"no links", func(p *Page) { p.Runs[0].LinkBytes = nil }, "0 link directions"},
		{"overflow", func(p *Page) { p.Runs[0].LinkBytes[3] = math.MaxUint64 }, "can be counted"},
		{"payload", func(p *Page) { p.Runs[0].PayloadLinkBytes = math.MaxUint64 }, "payload"},
		{"time", func(p *Page) { p.Runs[0].TimeUS = math.NaN() }, "NaN us"},
		{"negative time", func(p *Page) { p.Runs[0].TimeUS = -1 }, "-1 us"},
	} {
		p := somePage(t, "fat-tree:16,4,2")
		c.edit(p)
		var b bytes.Buffer
		err := p.Write(&b)
		if !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), c.want) || b.Len() > 0 {
			t.Errorf("%s: error %v, %d bytes written; want an error with %q, and no output", c.name, err, b.Len(), c.want)
		}
	}
}

func TestTooLargeToDraw(t *testing.T) {
	for _, spec := range []string{"fat-tree3:16384,64", "fat-tree:2000,2000,2"} {
		if err := Drawable(parse(t, spec)); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "at most") {
			t.Errorf("%s: %v", spec, err)
		}
	}
	if err := Drawable(parse(t, "fat-tree3:4096,32")); err != nil {
		t.Error(err)
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestWriteFails(t *testing.T) {
	if err := somePage(t, "star:2").Write(fullDisk{}); !errors.Is(err, io.ErrShortWrite) || errors.Is(err, ErrInput) {
		t.Errorf("error %v", err)
	}
}

// A run without traffic has no ratios.
func TestNothingCarried(t *testing.T) {
	p := somePage(t, "fat-tree:188,12,6")
	for i := range p.Runs {
		p.Runs[i] = Run{Name: "idle", Multicast: i == 0, LinkBytes: make([]uint64, len(p.Graph.Links))}
	}
	page := render(t, p)
	if strings.Contains(page, "NaN") || strings.Contains(page, "Inf") || !strings.Contains(page, "not verified") {
		t.Error("the page of runs without traffic shows NaN or Inf, or lacks \"not verified\"")
	}
}
