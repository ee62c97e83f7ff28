//go:build verbs

package verbs

// Die lets peers alone without a word, as a process that is killed does.
func (r *RC) Die() {
	for _, p := range r.peers {
		if p != nil {
			p.die()
		}
	}
}

func (p *peer) die() {
	p.mu.Lock()
	defer p.unlock()
	p.told = true
	p.vanish()
}
