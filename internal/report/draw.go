package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/allcast/allcast/internal/topology"
)

// drawing is the picture of one run.
type drawing struct {
	Width, Height, TickWidth, LabelX float64
	Dense                            bool
	Pods                             []rect
	Cables                           []stroke // between switches
	Ticks                            []stroke // cables of hosts
	Switches                         []rect
	Rows                             []label // names of the levels
	Ways                             []wayLabel
	Numbers                          []label // numbers of hosts
}

// stroke is one direction of a cable, or of the cables of a leaf's hosts.
type stroke struct {
	Class, Path, Link, Title string
	Width                    float64 // 0 for the width of its group

	bytes uint64
}

type rect struct {
	X, Y, W, H float64
	Title      string
	Label      label
}

type label struct {
	X, Y float64
	Text string
}

// wayLabel is the label of a direction between two levels: its name, its traffic and its line
// style.
type wayLabel struct {
	label
	Bytes  uint64
	Sample string // a sample line; "" where the position shows the direction
	Up     bool
}

// draw draws a run on the page's layout and scale.
func (l *layout) draw(r *Run, s scale) drawing {
	d := drawing{
		Width: drawingWidth, Height: l.height, TickWidth: l.tickWidth(), LabelX: marginLeft - 36,
		Dense: len(l.g.Links)/2-l.g.Hosts > maxFull,
	}
	for i, b := range l.podBox {
		d.Pods = append(d.Pods, newRect(b, fmt.Sprintf("pod %d", i)))
	}
	d.Cables = l.cables(r, s)
	if l.folded {
		d.Ticks = l.bars(r, s)
	} else {
		d.Ticks = l.ticks(r, s)
	}
	l.drawSwitches(&d, r)
	l.drawLabels(&d, r)
	return d
}

// cables draws the cables between switches, the busiest on top. The two directions of a cable lie
// side by side. The style dashes the upward one, because dense cables hide which side is which.
func (l *layout) cables(r *Run, s scale) []stroke {
	ups, downs := make([]int, l.g.Nodes()), make([]int, l.g.Nodes()) // ports of each node
	for c := l.g.Hosts; c < len(l.g.Links)/2; c++ {
		ups[l.g.Links[2*c].From]++
		downs[l.g.Links[2*c].To]++
	}
	port := func(n topology.NodeID, i, of int) (at, apart float64) {
		b := l.boxes[n]
		return b.x + b.w*(float64(i)+0.5)/float64(of), min(b.w/float64(of)/4, directionGap)
	}
	nextUp, nextDown := make([]int, l.g.Nodes()), make([]int, l.g.Nodes())
	var all []stroke
	for c := l.g.Hosts; c < len(l.g.Links)/2; c++ {
		lower, upper := l.g.Links[2*c].From, l.g.Links[2*c].To
		x1, apart1 := port(lower, nextUp[lower], ups[lower])
		x2, apart2 := port(upper, nextDown[upper], downs[upper])
		y1, y2 := l.boxes[lower].y, l.boxes[upper].bottom()
		nextUp[lower]++
		nextDown[upper]++
		up := l.stroke(r, s, topology.LinkID(2*c), line(x1-apart1, y1, x2-apart2, y2))
		up.Class += " up"
		down := l.stroke(r, s, topology.LinkID(2*c+1), line(x2+apart2, y2, x1+apart1, y1))
		all = append(all, up, down)
	}
	slices.SortStableFunc(all, func(a, b stroke) int { return cmp.Compare(a.bytes, b.bytes) })
	return all
}

// halves splits a host's cable in two: the half at each end shows what that end sends. With two
// hundred hosts there is no room for two lines per host.
func halves(x, bottom, top float64) (up, down string) {
	middle := (bottom + top) / 2
	return line(x, bottom, x, middle+directionGap/2), line(x, top, x, middle-directionGap/2)
}

func line(x1, y1, x2, y2 float64) string {
	return fmt.Sprintf("M%v %vL%v %v", tenth(x1), tenth(y1), tenth(x2), tenth(y2))
}

func (l *layout) stroke(r *Run, s scale, id topology.LinkID, path string) stroke {
	n := r.LinkBytes[id]
	return stroke{
		Class: class(s.colour(n)), Path: path, Link: fmt.Sprint(id), bytes: n,
		Title: linkName(l.g, id) + ": " + exact(n),
	}
}

// ticks draws each host's cable.
func (l *layout) ticks(r *Run, s scale) []stroke {
	var all []stroke
	for h := range l.g.Hosts {
		b := l.boxes[h]
		x := b.x + b.w/2
		up, down := halves(x, b.bottom(), b.y)
		all = append(all, l.stroke(r, s, l.g.HostUp(h), up), l.stroke(r, s, l.g.HostDown(h), down))
	}
	return all
}

// bars draws the hosts of each leaf as one bar in the colour of the busiest. A mean would hide the
// host that all others wait for.
func (l *layout) bars(r *Run, s scale) []stroke {
	var all []stroke
	for i, hosts := range l.racks {
		if len(hosts) == 0 {
			continue
		}
		b := l.boxes[l.nodes[topology.LeafLevel][i]]
		x := b.x + b.w/2
		up, down := halves(x, b.bottom()+hostHeight, b.bottom())
		all = append(all,
			l.bar(r, s, hosts, up, l.g.HostUp, "%s → %s"),
			l.bar(r, s, hosts, down, l.g.HostDown, "%[2]s → %[1]s"))
	}
	return all
}

func (l *layout) bar(r *Run, s scale, hosts []int, path string, link func(int) topology.LinkID, way string) stroke {
	first, last := hosts[0], hosts[len(hosts)-1]
	busiest, sum := link(first), uint64(0)
	for _, h := range hosts {
		n := r.LinkBytes[link(h)]
		sum += n
		if n > r.LinkBytes[busiest] {
			busiest = link(h)
		}
	}
	leaf := l.g.Links[l.g.HostUp(first)].To
	most := r.LinkBytes[busiest]
	return stroke{
		Class: class(s.colour(most)), Path: path, Link: fmt.Sprintf("%d-%d", link(first), link(last)), bytes: most,
		Width: l.boxes[leaf].w,
		Title: fmt.Sprintf(way, l.name(first)+" to "+l.name(last), l.g.NodeName(leaf)) +
			fmt.Sprintf(": %s at most (%s), %s on all %d", exact(most), linkName(l.g, busiest), exact(sum), len(hosts)),
	}
}

// name returns the name of a host.
func (l *layout) name(host int) string { return l.g.NodeName(topology.NodeID(host)) }

func newRect(b box, title string) rect {
	return rect{X: b.x, Y: b.y, W: b.w, H: b.h, Title: title}
}

func (l *layout) drawSwitches(d *drawing, r *Run) {
	in, out := make([]uint64, l.g.Nodes()), make([]uint64, l.g.Nodes())
	for id, link := range l.g.Links {
		out[link.From] += r.LinkBytes[id]
		in[link.To] += r.LinkBytes[id]
	}
	for k := topology.LeafLevel; int(k) < len(l.nodes); k++ {
		last := l.nodes[k][len(l.nodes[k])-1]
		for _, n := range l.nodes[k] {
			b := l.boxes[n]
			x := newRect(b, fmt.Sprintf("%s: %s in, %s out", l.g.NodeName(n), exact(in[n]), exact(out[n])))
			// Numbers in only some switches of a level would look like a pattern.
			if b.w >= digitWidth*float64(len(l.number(last))+1) {
				x.Label = label{X: tenth(b.x + b.w/2), Y: b.y + b.h/2 + 4, Text: l.number(n)}
			}
			d.Switches = append(d.Switches, x)
		}
	}
}

// drawLabels writes the names of the levels, and the traffic of each direction between them, into
// the margin.
func (l *layout) drawLabels(d *drawing, r *Run) {
	carried := make([][2]uint64, len(l.nodes)) // by the lower level: up, down
	for id, link := range l.g.Links {
		way := id % 2
		lower := link.From
		if way == 1 {
			lower = link.To
		}
		carried[l.g.Level(lower)][way] += r.LinkBytes[id]
	}
	way := func(from, to topology.Level, y float64, n uint64) {
		w := wayLabel{label: label{Text: l.names[from] + " → " + l.names[to], Y: tenth(y - 2)}, Bytes: n}
		if from != topology.HostLevel && to != topology.HostLevel {
			w.Sample, w.Up = line(marginLeft-30, y+4, marginLeft-12, y+4), to > from
		}
		d.Ways = append(d.Ways, w)
	}
	for k := len(l.nodes) - 1; k >= int(topology.LeafLevel); k-- {
		upper, lower := topology.Level(k), topology.Level(k-1)
		top := l.rowY(upper)
		d.Rows = append(d.Rows, label{Y: top + switchHeight/2 + 4, Text: l.count(upper)})
		height := cableHeight
		if lower == topology.HostLevel {
			height = hostHeight
		}
		top += switchHeight
		way(upper, lower, top+height/4, carried[lower][1])
		way(lower, upper, top+3*height/4, carried[lower][0])
	}
	if !l.numbers {
		return
	}
	for h := range l.g.Hosts {
		b := l.boxes[h]
		d.Numbers = append(d.Numbers, label{X: tenth(b.x + b.w/2), Y: b.bottom() + 13, Text: fmt.Sprint(h)})
	}
}
