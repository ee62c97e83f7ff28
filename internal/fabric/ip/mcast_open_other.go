//go:build !linux

package ip

// openMulticast has only one way here.
func openMulticast(p *mcastPlan) (*Multicast, error) { return openPortable(p) }
