package aggregate

import (
	"fmt"

	"github.com/allcast/allcast/internal/fabric/ip"
	"github.com/allcast/allcast/internal/inc"
)

const (
	minWindow   = 4  // smallest useful window
	smallWindow = 16 // a job may have it although it takes more than a quarter of the receive buffer
)

// charge is what a kernel charges a socket for a contribution, at most.
func charge(chunk int) int64 {
	return int64(ip.FrameCharge(ipv6Header + udpHeader + inc.HeaderSize + chunk))
}

// Bytes that a job takes in addition to its slots: addresses, the tree and its text.
const (
	rankSize = 192
	nodeSize = 256
)

// footprint is the memory of a job without its slots, at most.
func (j *job) footprint() int64 {
	return int64(2*len(j.text) + rankSize*j.size + nodeSize*len(j.tree.Nodes))
}

// allot gives a job a window. All children may send a whole window at once, so the windows of all jobs together must
// fit the receive buffer. A job gets at most a quarter of it, and half of what other jobs have left, so that those
// that come later find room. A small window may take half of what is left in any case. The slots must fit the memory of
// the job and of the server. The caller holds mu.
func (s *Server) allot(j *job, cfg *inc.SessionConfig) error {
	perPlace := charge(j.chunk) * int64(len(j.children))
	fits := max(min(s.total/4, s.room/2)/perPlace, min(s.room/2/perPlace, smallWindow))
	if fits < minWindow {
		return fmt.Errorf("no room for a window of %d chunks in its receive buffer of %d KiB, which %d jobs share: "+
			"raise net.core.rmem_max, or use more aggregators", minWindow, s.Buffer()>>10, len(s.jobs)+1)
	}
	cfg.Window = uint32(min(int64(cfg.Window), fits))
	limit := min(s.cfg.JobMemory, s.cfg.Memory-s.memory)
	for j.footprint()+cfg.MaxMemory() > limit {
		if cfg.Window /= 2; cfg.Window < minWindow {
			return fmt.Errorf("no memory for a window of %d chunks: %d bytes of %d are free for the job "+
				"(--memory, --job-memory)", minWindow, max(0, limit), s.cfg.Memory)
		}
	}
	j.window, j.memory, j.room = cfg.Window, j.footprint()+cfg.MaxMemory(), perPlace*int64(cfg.Window)
	s.memory += j.memory
	s.room -= j.room
	return nil
}
