//go:build !linux

package ip

// openMulticast opens plain sockets.
func openMulticast(p *mcastPlan) (*Multicast, error) { return openPortable(p) }
