package aggregate

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/reduce"
)

// A job is a job's session at this aggregator. The server's lock guards all fields but data.
type job struct {
	id       uint32
	name     string
	secret   []byte
	tree     *inc.Tree
	text     string // of the tree
	node     int    // this aggregator
	size     int
	chunk    int
	window   uint32 // slots of a communicator
	memory   int64  // of all slots, at most
	room     int64  // bytes of the receive buffer that the window may fill
	created  time.Time
	children []*child // nil: not attached
	missing  int      // number of nil children
	lost     string   // why a child left: the first of those that are missing
	lostAt   int      // position of that child
	up       *uplink  // nil unless all children are attached and this aggregator has a parent
	status   status   // last status for the children
	idle     *time.Timer
	ascent   time.Time // of the last attachment at the parent

	data jobData
}

// An uplink is the attachment at the parent.
type uplink struct {
	cancel context.CancelFunc
	status status
	why    string // reason for the parent
}

func (j *job) addr() string { return j.tree.Nodes[j.node].Addr }

func (j *job) stopIdle() {
	if j.idle != nil {
		j.idle.Stop()
		j.idle = nil
	}
}

// childName names a child for people.
func (j *job) childName(at int) string {
	if c := j.tree.Nodes[j.node].Children[at]; c.Node >= 0 {
		return "aggregator " + j.tree.Nodes[c.Node].Addr
	} else {
		return fmt.Sprintf("rank %d", c.Rank)
	}
}

// admit makes a connection a child of its job, and opens the job if it is new. A second attachment of the same child
// replaces the first: the child may have lost its connection earlier than this side.
func (s *Server) admit(conn net.Conn, a *attach) (*child, error) {
	tree, err := a.check()
	if err != nil {
		return nil, err
	}
	from := plain(conn.RemoteAddr().(*net.TCPAddr).AddrPort()).Addr()
	if err := checkRanks(tree, a, from, s.sockets[0]); err != nil {
		return nil, err
	}
	if err := s.checkParent(tree, a.Node); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.unlock()
	if s.closed {
		return nil, errors.New("it stops")
	}
	j := s.jobs[a.Session]
	if j == nil {
		if j, err = s.create(tree, a); err != nil {
			return nil, err
		}
	} else if err := j.same(a); err != nil {
		return nil, err
	}
	j.stopIdle()
	c := &child{
		job: j, at: a.Child, conn: conn, window: a.Window, ranks: a.Ranks, done: make(chan struct{}),
		notify: make(chan struct{}, 1),
	}
	if old := j.children[c.at]; old != nil {
		_ = old.conn.Close()
	} else {
		j.missing--
	}
	j.children[c.at] = c
	j.data.setOwners(a.Ranks)
	if j.up != nil { // the addresses of the ranks below may have changed
		s.detach(j, fmt.Sprintf("%s has attached to aggregator %s again", j.childName(c.at), j.addr()))
	}
	if j.lostAt == c.at {
		j.lost = ""
	}
	s.update(j)
	c.tell(j.status, true)
	return c, nil
}

// same reports whether a child belongs to a job.
func (j *job) same(a *attach) error {
	switch {
	case subtle.ConstantTimeCompare(j.secret, a.Secret) == 0 || j.name != a.Job:
		return fmt.Errorf("another job has session %d", a.Session)
	case j.text == a.Tree && j.size == a.Size && j.node != a.Node:
		return fmt.Errorf("this aggregator is %s in the tree of the job's other children: two addresses in "+
			"ALLCAST_AGGREGATORS lead to the same aggregator", j.addr())
	case j.text != a.Tree || j.size != a.Size:
		return errors.New("other ranks of the job have another tree: set ALLCAST_AGGREGATORS to the same on all ranks")
	case j.chunk != a.Chunk:
		return fmt.Errorf("chunks of %d bytes: other ranks of the job have %d", a.Chunk, j.chunk)
	}
	return nil
}

// checkParent compares the tree with this aggregator's own parent.
func (s *Server) checkParent(tree *inc.Tree, node int) error {
	want := ""
	if p := tree.Nodes[node].Parent; p >= 0 {
		want = tree.Nodes[p].Addr
	}
	switch {
	case want == s.cfg.Parent:
		return nil
	case want == "":
		return fmt.Errorf("its parent is %s, but in ALLCAST_AGGREGATORS it has none", s.cfg.Parent)
	case s.cfg.Parent == "":
		return fmt.Errorf("it has no parent, but in ALLCAST_AGGREGATORS its parent is %s: start it with --parent", want)
	case s.sameHost(want, s.cfg.Parent):
		return nil
	}
	return fmt.Errorf("its parent is %s, but in ALLCAST_AGGREGATORS it is %s", s.cfg.Parent, want)
}

// sameHost reports whether two addresses are the same, perhaps by different names.
func (s *Server) sameHost(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB {
		return false
	}
	ctx, cancel := context.WithTimeout(s.ctx, handshakeTime)
	defer cancel()
	listA, errA := net.DefaultResolver.LookupNetIP(ctx, "ip", hostA)
	listB, errB := net.DefaultResolver.LookupNetIP(ctx, "ip", hostB)
	if errA != nil || errB != nil {
		return false
	}
	for _, x := range listA {
		for _, y := range listB {
			if x.Unmap() == y.Unmap() {
				return true
			}
		}
	}
	return false
}

// create opens a job. The caller holds mu.
func (s *Server) create(tree *inc.Tree, a *attach) (*job, error) {
	if len(s.jobs) >= s.cfg.MaxJobs {
		return nil, fmt.Errorf("it serves %d jobs already, which is its limit (--max-jobs)", len(s.jobs))
	}
	j := &job{
		id: a.Session, name: a.Job, secret: a.Secret, tree: tree, text: a.Tree, node: a.Node, size: a.Size,
		chunk: a.Chunk, created: time.Now(),
		children: make([]*child, len(tree.Nodes[a.Node].Children)),
	}
	j.missing = len(j.children)
	cfg := inc.SessionConfig{
		Tree: tree, Node: a.Node, Window: a.Window, Chunk: a.Chunk, Comms: s.cfg.Comms,
		Token: newTokens(a.Secret).of,
		Add: func(dst, src []byte, typ, op uint8) error {
			return reduce.Into(dst, src, reduce.Type(typ), reduce.Op(op))
		},
	}
	if err := s.allot(j, &cfg); err != nil {
		return nil, err
	}
	j.data.session = inc.NewSession(cfg)
	j.data.owners = make([]netip.AddrPort, a.Size)
	j.status = status{Pending: true}
	s.jobs[j.id] = j
	s.publish()
	s.note(slog.LevelInfo, "new job", "job", j.name, "session", j.id, "ranks", j.size, "children", len(j.children),
		"window", j.window, "chunk", j.chunk)
	return j, nil
}

// update computes the status of a job and tells its children. The caller holds mu.
func (s *Server) update(j *job) {
	now := s.assess(j)
	if now == j.status {
		return
	}
	if now.Window > 0 && j.status.Window == 0 {
		s.note(slog.LevelInfo, "job is ready", "job", j.name, "session", j.id, "window", now.Window)
	}
	urgent := now.Window != j.status.Window || now.Pending != j.status.Pending
	j.status = now
	for _, c := range j.children {
		if c != nil {
			c.tell(now, urgent)
		}
	}
}

func (s *Server) assess(j *job) status {
	if j.missing > 0 {
		s.detach(j, j.lost)
		if j.lost != "" {
			return status{Why: j.lost, Pending: true}
		}
		return status{Why: clip(fmt.Sprintf("aggregator %s waits for %s", j.addr(), j.absent())), Pending: true}
	}
	j.lost = ""
	window := j.window
	for _, c := range j.children {
		window = min(window, c.window)
	}
	if s.cfg.Parent == "" {
		return status{Window: window}
	}
	if j.up == nil {
		s.ascend(j, window)
	}
	up := j.up.status
	up.Window = min(up.Window, window)
	return up
}

// absent lists children that have not attached.
func (j *job) absent() string {
	const limit = 8
	var names []string
	for i, c := range j.children {
		if c == nil && len(names) < limit {
			names = append(names, j.childName(i))
		}
	}
	text := strings.Join(names, ", ")
	if j.missing > limit {
		text += fmt.Sprintf(" and %d more", j.missing-limit)
	}
	return text
}

// ascentInterval is the least time between two attachments of a job at the parent. A child that comes and goes causes
// one each time, with the addresses of all ranks.
const ascentInterval = 100 * time.Millisecond

// ascentPause returns how long the next attachment waits, and takes note of it. The caller holds the server's lock.
func (j *job) ascentPause(now time.Time) time.Duration {
	if next := j.ascent.Add(ascentInterval); !now.Before(next) {
		j.ascent = now
	} else if !now.Before(j.ascent) { // otherwise the last one has not begun, and never will
		j.ascent = next
	}
	return j.ascent.Sub(now)
}

// ascend attaches a job at the parent. The caller holds mu.
func (s *Server) ascend(j *job, window uint32) {
	ctx, cancel := context.WithCancel(s.ctx)
	u := &uplink{cancel: cancel, status: status{
		Pending: true, Why: fmt.Sprintf("aggregator %s waits for its parent %s", j.addr(), s.cfg.Parent),
	}}
	j.up = u
	a := &attach{
		Job: j.name, Session: j.id, Secret: j.secret, Tree: j.text, Size: j.size,
		Node: j.tree.Nodes[j.node].Parent, Child: j.tree.Position(j.node), Chunk: j.chunk, Window: window,
	}
	for _, c := range j.children {
		a.Ranks = append(a.Ranks, c.ranks...)
	}
	c := &client{
		addr: s.cfg.Parent, key: s.cfg.SiteKey, timing: s.cfg.Timing, log: s.log, pause: j.ascentPause(time.Now()),
		attach: func() *attach { return a },
		connected: func(parent netip.AddrPort) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if j.up == u {
				j.data.setParent(parent)
			}
		},
		status: func(st status) {
			s.mu.Lock()
			defer s.unlock()
			if j.up == u {
				u.status = st
				s.update(j)
			}
		},
		leave: func() string {
			s.mu.Lock()
			defer s.mu.Unlock()
			return u.why
		},
	}
	s.wg.Go(func() { defer cancel(); c.run(ctx) })
}

// detach leaves the parent. The caller holds mu.
func (s *Server) detach(j *job, why string) {
	if j.up != nil {
		j.up.why = why
		j.up.cancel()
		j.up = nil
		j.data.setParent(netip.AddrPort{})
	}
}

// leave ends an attachment.
func (s *Server) leave(c *child, err error) {
	s.mu.Lock()
	defer s.unlock()
	j := c.job
	if j.children[c.at] != c || s.closed {
		return // replaced by a later attachment
	}
	j.children[c.at] = nil
	j.missing++
	j.data.forgetOwners(c.ranks)
	why, detached := s.farewell(c, err)
	if j.lost == "" {
		j.lost, j.lostAt = why, c.at
	}
	level := slog.LevelWarn
	if detached {
		level = slog.LevelDebug // the usual end of a job
	}
	s.note(level, "a child has left", "job", j.name, "session", j.id, "reason", why)
	s.update(j)
	switch {
	case j.missing < len(j.children):
	case detached:
		s.remove(j)
	default: // the child may come back
		j.idle = time.AfterFunc(s.cfg.Timing.Expiry, func() {
			s.mu.Lock()
			defer s.unlock()
			if j.missing == len(j.children) && j.idle != nil {
				s.remove(j)
			}
		})
	}
}

// farewell describes the end of an attachment.
func (s *Server) farewell(c *child, err error) (why string, detached bool) {
	here, name := c.job.addr(), c.job.childName(c.at)
	if d, ok := errors.AsType[*detachedError](err); ok {
		if d.why != "" {
			return d.why, true // it names the culprit
		}
		return fmt.Sprintf("%s has detached from aggregator %s", name, here), true
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.conns.expired.Add(1)
		why = fmt.Sprintf("aggregator %s: no sign of %s for %v", here, name, s.cfg.Timing.Expiry)
	case errors.Is(err, io.EOF):
		why = fmt.Sprintf("aggregator %s: %s closed its connection", here, name)
	default:
		why = fmt.Sprintf("aggregator %s: lost the connection of %s: %v", here, name, err)
	}
	return clip(why), false
}

// remove forgets a job. The caller holds mu.
func (s *Server) remove(j *job) {
	if s.jobs[j.id] != j {
		return
	}
	s.detach(j, j.lost)
	delete(s.jobs, j.id)
	s.publish()
	last, unsent := j.state()
	s.past.Forged += last.Stats.Forged
	s.past.Malformed += last.Stats.Malformed
	s.data.unsent.Add(unsent)
	s.memory -= j.memory
	s.room += j.room
	s.note(slog.LevelInfo, "job has ended", "job", j.name, "session", j.id, "for", time.Since(j.created))
}
