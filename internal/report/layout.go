package report

import (
	"math"

	"github.com/allcast/allcast/internal/topology"
)

// Sizes of a drawing in its own units. They are pixels if two drawings stand side by side on a
// wide screen.
const (
	drawingWidth = 776.0
	marginLeft   = 140.0 // room for the names of levels and directions
	marginRight  = 10.0
	marginTop    = 6.0
	podGap       = 14.0
	switchHeight = 16.0
	cableHeight  = 124.0 // between two levels of switches
	hostHeight   = 64.0  // height of a host's cable
	labelHeight  = 16.0  // height of the hosts' numbers
	directionGap = 3.0   // gap between the directions of a cable

	maxHostPitch   = 64.0
	maxSwitchWidth = 72.0
	digitWidth     = 6.4 // width of a digit in a switch

	// Maximum number of hosts with a tick each; above it, the hosts of a leaf share one bar.
	maxTicks = 256
	// Maximum number of cables between switches drawn at full width. Above it, lines with almost
	// no traffic get thinner, because they would cover the others.
	maxFull = 400
)

// box is the position of a switch.
type box struct{ x, y, w, h float64 }

func (b box) bottom() float64 { return b.y + b.h }

// layout holds the positions of all elements. All runs of a page share it.
type layout struct {
	*tiers
	boxes   []box // by node; a host's box is its field below its leaf
	folded  bool  // whether the hosts of a leaf share one bar
	pitch   float64
	height  float64
	numbers bool  // whether hosts show their numbers
	spans   []box // by pod: its share of the width
	podBox  []box // empty with one pod
}

func newLayout(g *topology.Graph) *layout {
	l := &layout{tiers: newTiers(g), boxes: make([]box, g.Nodes()), folded: g.Hosts > maxTicks}
	l.placeLeaves()
	l.placeHosts()
	l.placeSpines()
	l.placeCores()
	for n := range l.boxes {
		b := &l.boxes[n]
		b.x, b.w = tenth(b.x), tenth(b.w)
	}
	return l
}

// rowY is the top of a level of switches; the highest is at the top.
func (l *layout) rowY(k topology.Level) float64 {
	return marginTop + float64(len(l.nodes)-1-int(k))*(switchHeight+cableHeight)
}

// placeLeaves divides the width. A pod's share depends on its leaves, but is at least what its
// spines need: the last pod may have few leaves and all spines.
func (l *layout) placeLeaves() {
	weights, all := make([]float64, len(l.pods)), 0.0
	for i, p := range l.pods {
		weights[i] = max(float64(len(p.leaves)), float64(len(p.spines))/2)
		all += weights[i]
	}
	left := marginLeft
	width := drawingWidth - marginLeft - marginRight - podGap*float64(len(l.pods)-1)
	most := float64(l.hostsPerLeaf())
	l.pitch = math.Inf(1)
	for i, p := range l.pods {
		slot := width * weights[i] / all / float64(len(p.leaves))
		l.pitch = min(l.pitch, 0.88*slot/most, maxHostPitch)
		for j, leaf := range p.leaves {
			l.boxes[leaf] = box{x: left + float64(j)*slot, w: slot} // the whole slot for now
		}
		span := width * weights[i] / all
		l.spans = append(l.spans, box{x: left, w: span})
		left += span + podGap
	}
	y := l.rowY(topology.LeafLevel)
	for _, leaf := range l.nodes[topology.LeafLevel] {
		b := &l.boxes[leaf]
		w := min(max(l.pitch*most, 14), 0.94*b.w)
		*b = box{x: b.x + (b.w-w)/2, y: y, w: w, h: switchHeight}
	}
	if len(l.pods) == 1 {
		return
	}
	for _, span := range l.spans {
		l.podBox = append(l.podBox, box{
			x: tenth(span.x - podGap/2 + 2), w: tenth(span.w + podGap - 4),
			y: l.rowY(topology.SpineLevel) - 5, h: cableHeight + 2*switchHeight + hostHeight + 12,
		})
	}
}

func (l *layout) placeHosts() {
	y := l.rowY(topology.LeafLevel) + switchHeight
	for i, hosts := range l.racks {
		leaf := l.boxes[l.nodes[topology.LeafLevel][i]]
		left := leaf.x + (leaf.w-l.pitch*float64(l.hostsPerLeaf()))/2
		for j, h := range hosts {
			l.boxes[h] = box{x: left + float64(j)*l.pitch, y: y, w: l.pitch, h: hostHeight}
		}
	}
	l.height = y + hostHeight + 6
	l.numbers = !l.folded && l.pitch >= digitWidth*float64(len(l.number(topology.NodeID(l.g.Hosts-1)))+1)
	if l.numbers {
		l.height += labelHeight
	}
}

// placeSpines spreads the spines of a pod over its leaves.
func (l *layout) placeSpines() {
	for i, p := range l.pods {
		l.spread(p.spines, l.spans[i].x, l.spans[i].x+l.spans[i].w, topology.SpineLevel)
	}
}

func (l *layout) placeCores() {
	if len(l.nodes) > int(topology.CoreLevel) {
		l.spread(l.nodes[topology.CoreLevel], marginLeft, drawingWidth-marginRight, topology.CoreLevel)
	}
}

func (l *layout) spread(nodes []topology.NodeID, left, right float64, k topology.Level) {
	slot := (right - left) / float64(len(nodes))
	w := min(0.72*slot, maxSwitchWidth)
	for i, n := range nodes {
		l.boxes[n] = box{x: left + (float64(i)+0.5)*slot - w/2, y: l.rowY(k), w: w, h: switchHeight}
	}
}

// tickWidth leaves a gap between hosts if there is room.
func (l *layout) tickWidth() float64 {
	return tenth(min(0.78*l.pitch, 12))
}

func tenth(v float64) float64 { return math.Round(v*10) / 10 }
