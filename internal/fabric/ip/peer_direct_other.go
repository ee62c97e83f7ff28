//go:build !unix

package ip

// peerDirect is nothing here: the writer writes.
type peerDirect struct{}

func (p *peer) direct() bool { return false }
