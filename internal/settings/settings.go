// Package settings describes how a process joins a job, in one validated value.
//
// [Resolve] builds the value from three sources. A field that the caller sets, from an option of the
// library or a flag of the command, overrides the environment. A variable of the environment
// ([Variables]) overrides launchers and defaults. Rank, size and address come from the caller, or else
// from the launcher's variables ([FromLauncher]).
//
// Other packages receive a Settings, or the parts that they need, and neither rename nor repeat its
// fields. They rely on Resolve's checks.
package settings

import (
	"log/slog"
	"net/netip"
	"os"
	"time"

	"github.com/allcast/allcast/internal/fabric/fault"
	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/observe"
	"github.com/allcast/allcast/store"
)

// Settings is the complete description. The fields that have an option carry its name; see
// allcast.Options.
type Settings struct {
	Job
	Meeting
	Network
	Protection
	Transfer
	Aggregation
	Liveness
	Observation
	Choice
}

// Job identifies this process among the ranks.
type Job struct {
	Rank, Size           int
	LocalRank, LocalSize int    // among the ranks of this machine; -1 if unknown
	Addr                 string // host:port of rank 0's rendezvous; "" if there is a Store
	Launcher             string // source of rank and size, such as "Slurm"; "" if the caller set them
	Version              string // of the software, for people
}

// Meeting says where ranks find each other if they have no address of rank 0, and what they must have in common.
type Meeting struct {
	Store    store.Store // nil to meet at Addr
	Attempt  int         // part of the keys in the store
	Protocol int         // number of the protocol; the same on all ranks
}

// Network selects and configures the network.
type Network struct {
	Interface     string           // name, or ^name for any other; "" for the one towards rank 0
	Fabric        string           // IP or Verbs
	Device        string           // verbs: "name:port", or several, separated by commas, that ranks take in turn
	Rack          string           // of this rank
	Subgroups     int              // 0: one per group of Groups, or else 1
	Groups        []netip.AddrPort // at least one per subgroup; nil to derive them from the job's secret
	CommGroups    netip.Prefix     // addresses of communicators' groups; zero: none with Groups, else derived
	Chunk         int              // 0 for the largest that fits
	TTL, DSCP     int
	ReceiveBuffer int  // bytes; 0 for the fabric's default
	PlainSockets  bool // no segmentation offload
	NoMulticast   bool
	Fault         fault.Spec
}

// Protection says what attackers and accidents must not do to data.
type Protection struct {
	Key       []byte // nil for an unauthenticated job
	Secure    bool   // encrypt all traffic; needs a key
	Integrity bool   // detect data that changes on the network or in memory
}

// Aggregation names the aggregators that reduce data inside the network.
type Aggregation struct {
	Aggregators string    // as a user writes it; Tree is its meaning
	Tree        *inc.Tree // nil for none
	SiteKey     []byte    // opens sessions at the aggregators
}

// Transfer says how fast, by which code and on which processors data moves.
type Transfer struct {
	Rate         float64 // bits per second that reach a rank; 0 if unknown
	Datapath     string  // Host, BPF or Auto
	Hook         string  // BPF and Auto: one of Hooks; else ""
	ReceiveCores []int   // processors of the kernel's receive threads; nil for the kernel's choice
	Pin          []int   // processors of the workers; nil for any
}

// Liveness bounds how long ranks wait for each other.
type Liveness struct {
	Timeout     time.Duration // silence after which a rank is lost
	JoinTimeout time.Duration
	Deadline    time.Duration // of an operation; 0 for none
}

// Observation says how people can watch the process.
type Observation struct {
	Logger   *slog.Logger
	Metrics  observe.Addr // of the metrics server; the zero value for none
	Inspect  bool         // "allcast inspect" can find the process
	Recorder string       // directory for the flight recorder's dumps; "" for none
}

// Choice says how algorithms are chosen.
type Choice struct {
	Tuning        string // as a user writes it; Rules is its meaning
	Rules         Rules
	NoCalibration bool
}

// Fabrics.
const (
	IP    = "ip"    // UDP multicast and TCP
	Verbs = "verbs" // InfiniBand and RoCE, if HasVerbs
)

// BuildVerbs says how to get a program that has Verbs.
const BuildVerbs = "this program was built without it: build it with \"go build -tags verbs\" " +
	"(that needs a C compiler and the headers of libibverbs and librdmacm)"

// Datapaths: the code that puts received chunks in place.
const (
	Host = "host" // this process
	BPF  = "bpf"  // a program in the kernel
	Auto = "auto" // BPF if it works, or else Host
)

// Hooks lists the places where the kernel can look at packets, the default first.
var Hooks = []string{"sockfilter", "tcx", "xdp"}

// Limits and defaults.
const (
	MaxSize      = 1 << 15 // ranks of a job; the rendezvous frames all their blobs with a 32-bit length
	MaxSubgroups = 64      // each takes sockets of every process
	maxRack      = 256     // bytes of a rack's name, which all ranks exchange
	maxVersion   = 200     // bytes; with the protocol number, at most 255
	minKey       = 16      // bytes
)

// Env looks up a variable, as os.LookupEnv does.
type Env func(name string) (value string, set bool)

// Process is the environment of this process.
var Process Env = os.LookupEnv

// Get returns the value of a variable, or "" if it is not set.
func (e Env) Get(name string) string {
	value, _ := e(name)
	return value
}
