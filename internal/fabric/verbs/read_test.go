//go:build verbs

package verbs

import (
	"testing"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/session"
)

// A cancelled read is never posted, even if its end makes the rank answer a Revoke: the peer then
// deregisters the memory.
func TestCancelRevokedRead(t *testing.T) {
	op := fabric.OpKey{Seq: 1}
	rem := &remote{known: true, active: 1, revoked: true}
	d := &directRead{id: fabric.ReadID{Op: op}, rem: rem, spans: []fabric.Span{{Len: 1}}, buf: make([]byte, 1)}
	p := &peer{link: link{stage: linked}, r: &RC{}}
	p.reads = reads{remotes: map[fabric.OpKey]*remote{op: rem}, ready: []*directRead{d}, max: 1}
	p.cancelReads(op)
	if !d.done || d.ok || len(p.reads.remotes) != 0 {
		t.Errorf("the read has ended: %v, with success: %v; %d buffers are known", d.done, d.ok, len(p.reads.remotes))
	}
	if len(p.requests.flying) != 0 || len(p.out.queue) != 1 || p.out.queue[0].f.Kind != session.Revoked {
		t.Errorf("%d requests were posted, and %d frames wait", len(p.requests.flying), len(p.out.queue))
	}
}
