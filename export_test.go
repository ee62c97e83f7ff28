package allcast

import "net"

// On lets rank 0 listen on a socket that is there already: a free port without a
// race.
func (o Options) On(l net.Listener) Options {
	o.listener = l
	return o
}
