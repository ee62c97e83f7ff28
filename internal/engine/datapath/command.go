package datapath

type commandKind uint8

const (
	commandOpen       commandKind = iota // landing
	commandClose                         // landing
	commandClaim                         // read; answered with claimed
	commandQuiesce                       // landing or op; answered with quiet
	commandMulticast                     // op, stream, to, psn, n, total; answered with Sent
	commandContribute                    // op, psn, n, total, try, offer; answered with Sent
	commandForget                        // comm: early datagrams of the communicator are not needed
	commandStop                          // the worker ends
)

// A command tells a worker what to do. Its kind says which fields count.
type command struct {
	kind    commandKind
	op      *Operation
	landing *landing
	read    *read
	comm    uint32
	stream  int    // of the operation
	to      int    // stream of the network that carries it
	psn, n  uint32 // chunks that are left to send
	total   uint32 // chunks that were to be sent
	try     uint8  // of contributions
	offer   bool   // whether contributions are only offered
}
