package sim

import (
	"maps"
	"time"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/units"
)

// flags are common to all operations. Their groups appear in this order in --help.
type flags struct {
	networkFlags
	Algo  *string `placeholder:"LIST"`
	algos []string

	Rate    units.Rate    `default:"100gbit" placeholder:"RATE"`
	Latency time.Duration `default:"500ns" placeholder:"D"`
	Chunk   units.Size    `default:"4K" placeholder:"SIZE" help:"Payload of one datagram or packet (default 4K)."`

	LossAll units.Probability `default:"0" placeholder:"P"`
	Stall   []units.Stall     `sep:"none" placeholder:"RANK@TIME+D"`
	Crash   []units.Crash     `sep:"none" placeholder:"RANK@TIME"`
	Detour  time.Duration     `default:"0s" placeholder:"D"`
	Noise   time.Duration     `default:"0s" placeholder:"D"`

	Timeout  time.Duration `default:"10s" placeholder:"D"`
	Deadline time.Duration `default:"0s" placeholder:"D" help:"Abort the operation after this time (default 0s, never)."`
	Seed     uint64        `default:"1" placeholder:"S" help:"Seed of all randomness (default 1)."`
	Pcap     string        `placeholder:"FILE"`
	HTML     string        `name:"html" placeholder:"FILE"`
}

// multicastFlags describe multicast: its schedule, and the queues and faults that only datagrams meet.
type multicastFlags struct {
	Chains    *int       `placeholder:"M"`
	ChainBy   string     `default:"rank" enum:"rank,rack" placeholder:"rank|rack"`
	Subgroups *int       `placeholder:"S"`
	Segment   units.Size `default:"0" placeholder:"SIZE"`
	Radix     int        `default:"4" placeholder:"K" help:"Radix of knomial trees (default 4)."`
	PSNBits   int        `name:"psn-bits" default:"0" placeholder:"N"`
	InPlace   bool       `name:"inplace" help:"Send from the rank's own block of the receive buffer."`

	Queue     switchQueue   `default:"lossless" placeholder:"lossless|SIZE"`
	RecvQueue hostQueue     `default:"unbounded" placeholder:"unbounded|SIZE"`
	RecvCost  time.Duration `default:"0s" placeholder:"D" help:"Host time per received chunk (default 0s)."`
	Datapath  string        `default:"ideal" placeholder:"SPEC"`
	Flow      string        `default:"none" enum:"none,credit" placeholder:"none|credit"`
	Tokens    bool

	Loss      units.Probability `default:"0" placeholder:"P"`
	Reorder   units.Probability `default:"0" placeholder:"P" help:"A datagram is displaced by up to 16 places."`
	Duplicate units.Probability `default:"0" placeholder:"P" help:"A datagram arrives twice."`
}

// HelpTexts implements cli.Helper. Operations that multicast and others share it.
func (flags) HelpTexts(op string) cli.HelpTexts {
	texts := operations[op].help(op)
	maps.Copy(texts.Flags, networkTexts())
	maps.Copy(texts.Flags, flagTexts)
	return texts
}

// flagTexts holds the help texts that are the same for all operations.
var flagTexts = map[string]string{
	"timeout": "A silent rank is declared lost after this time (default 10s).",
	"pcap": "Record every packet that leaves a host, whole, as RoCE v2 for Wireshark and tshark. The payload of data is " +
		"zeros.",
	"html": "Draw the network with every link coloured by the bytes it carried, all algorithms side by side, on one " +
		"self-contained page.",
	"rate": "Rate of a host's link (default 100gbit); links between switches run at the multiple that makes the tree " +
		"non-blocking, divided by --oversubscribe.",
	"latency":    "Latency of a link, including its switch (default 500ns).",
	"queue":      "Queue of a switch port, which drops when it is full (default lossless, with back-pressure).",
	"recv-queue": "Receive queue of a host, which drops when it is full (default unbounded).",
	"datapath": "Receiver of chunks: ideal (default), or the NIC's accelerator as in dpa:ud,threads=16 (ud or uc; " +
		"threads=1..256, queue=ENTRIES, port=CYCLES), at the rate of allcast model dpa and with a bounded receive queue.",
	"flow": "Flow control: none, or credit, which does not overrun a slow receiver (default none).",
	"tokens": "Datagrams carry a token of their operation, as on IP. Small operations are then eager: they need " +
		"no barrier.",
	"chains": "Broadcast chains, that is, roots that send at a time (default 1; in allgather+reduce-scatter all " +
		"ranks, at a paced rate). Values above what the operation can use are clamped.",
	"chain-by": "How ranks are assigned to chains (default rank).",
	"subgroups": "Multicast trees, each with its part of every buffer (default: as many as there are, one per spine, at " +
		"most 16). Values above what the operation can use are clamped.",
	"segment": "Point-to-point algorithms send in pieces of this size (default: whole blocks; 64K for chain and " +
		"binary).",
	"psn-bits": "Bits of the immediate that number chunks, 4 to 31 (default 24).",
	"loss":     "A datagram is dropped at one receiver, independently: a host, or an aggregator in a switch.",
	"loss-all": "Every packet is lost with this probability: a datagram at one receiver, a reliable packet until it " +
		"is retransmitted.",
	"stall": "Stop a rank's processor at TIME for D; may be repeated. aggN instead of RANK stops aggregator N of inc " +
		"(leaves first, the top last).",
	"crash":  "Stop a rank for good at TIME; may be repeated. aggN instead of RANK stops aggregator N of inc.",
	"detour": "Operating-system noise: hosts stop for this long on average, 1% of the time (default 0s).",
	"noise":  "Mean delay before a host reacts to a reliable message (default 0s).",
}
