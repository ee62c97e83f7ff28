package settings

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allcast/allcast/internal/fabric/fault"
	"github.com/allcast/allcast/internal/observe"
	"github.com/allcast/allcast/internal/units"
)

// A Variable is an entry of the environment that Allcast reads. An empty value counts as not set.
type Variable struct {
	Name    string
	Option  string // field of allcast.Options that overrides it; "" if there is none
	Meaning string
	Default string
	Example string

	// read stores a value, unless an option has set the field already. The errors say what is expected.
	// nil for variables that Key, SiteKey and bindings/mpi read.
	read func(s *Settings, value string, env Env) error
}

// Names of variables that other programs and packages set.
const (
	KeyVar     = "ALLCAST_KEY"
	KeyFileVar = "ALLCAST_KEY_FILE"

	AggregatorsVar = "ALLCAST_AGGREGATORS"
	SiteKeyFileVar = "ALLCAST_SITE_KEY_FILE"
)

// Variables lists all variables with the prefix ALLCAST_. The order matters where one depends on
// another.
var Variables = []Variable{
	{
		Name: KeyVar, Option: "Key", Example: "00112233445566778899aabbccddeeff",
		Meaning: "job key, 32 or more hex digits, the same on all ranks; " +
			"without it, a process cannot join or forge datagrams",
		Default: "none: whoever can reach the job can join it",
	},
	{
		Name: KeyFileVar, Option: "Key", Example: "/etc/allcast.key", Default: "none",
		Meaning: "file that holds the job key, instead of `ALLCAST_KEY`",
	},
	{
		Name: "ALLCAST_IFNAME", Option: "Interface", Example: "eth1", Default: "the interface towards rank 0",
		Meaning: "network interface, or `^name` for any other",
		read:    option(func(s *Settings) *string { return &s.Interface }, anyText),
	},
	{
		Name: "ALLCAST_FABRIC", Option: "Fabric", Example: "verbs", Default: "`ip`",
		Meaning: "network: `ip`, or `verbs` for InfiniBand and RoCE in programs built with `-tags verbs`; " +
			"the same on all ranks",
		read: option(func(s *Settings) *string { return &s.Fabric }, anyText),
	},
	{
		Name: "ALLCAST_DEVICE", Option: "Device", Example: "mlx5_0:1",
		Default: "the device of the interface towards rank 0",
		Meaning: "verbs device and port; ranks take several, separated by commas, in turn",
		read:    option(func(s *Settings) *string { return &s.Device }, anyText),
	},
	{
		Name: "ALLCAST_GROUPS", Option: "Groups", Example: "239.1.2.3:5000,239.1.2.4:5001",
		Default: "derived from the job",
		Meaning: "multicast groups, one per subgroup and usually one per spine; the same on all ranks",
		read:    option(func(s *Settings) *[]netip.AddrPort { return &s.Groups }, parseGroups),
	},
	{
		Name: "ALLCAST_COMM_GROUPS", Option: "CommGroups", Example: "239.196.0.0/16",
		Default: "derived from the job; none with `ALLCAST_GROUPS`",
		Meaning: "addresses from which communicators take multicast groups of their own (fabric `ip`); " +
			"the same on all ranks",
		read: option(func(s *Settings) *netip.Prefix { return &s.CommGroups }, func(value string) (netip.Prefix, error) {
			p, err := netip.ParsePrefix(value)
			if err != nil {
				err = errors.New("want a prefix such as 239.196.0.0/16") // netip's error repeats the value
			}
			return p, err
		}),
	},
	{
		Name: "ALLCAST_RACK", Option: "Rack", Example: "leaf3", Default: "none",
		Meaning: "name of this rank's rack, for chains by rack",
		read:    option(func(s *Settings) *string { return &s.Rack }, anyText),
	},
	{
		Name: "ALLCAST_RATE", Option: "Rate", Example: "25gbit", Default: "unknown: only credit limits senders",
		Meaning: "rate at which the network delivers to a rank; ranks that multicast at once pace themselves by it. " +
			"The same on all ranks",
		read: option(func(s *Settings) *float64 { return &s.Rate }, func(value string) (float64, error) {
			r, err := units.ParseRate(value)
			return float64(r), err
		}),
	},
	{
		Name: "ALLCAST_SECURE", Option: "Secure", Example: "on", Default: "`off`",
		Meaning: "`on`: encrypt and authenticate all traffic between ranks (AES-GCM); needs a key. " +
			"The same on all ranks",
		read: onOff(func(s *Settings, on bool) { s.Secure = s.Secure || on }),
	},
	{
		Name: "ALLCAST_INTEGRITY", Option: "Integrity", Example: "on", Default: "`off`",
		Meaning: "`on`: detect data that changes by accident, by checksums of all traffic and of every " +
			"multicast result. The same on all ranks",
		read: onOff(func(s *Settings, on bool) { s.Integrity = s.Integrity || on }),
	},
	{
		Name: AggregatorsVar, Option: "Aggregators", Default: "none",
		Example: "10.0.1.1:7900=0-3>10.0.0.1:7900;10.0.2.1:7900=4-7>10.0.0.1:7900;10.0.0.1:7900",
		Meaning: "aggregators (`allcast aggregator`) that reduce data inside the network, each as " +
			"`HOST:PORT[=RANKS][>PARENT]`, separated by semicolons; the same on all ranks",
		read: option(func(s *Settings) *string { return &s.Aggregators }, anyText),
	},
	{
		Name: SiteKeyFileVar, Option: "SiteKey", Example: "/etc/allcast-site.key", Default: "none",
		Meaning: "file that holds the site key, 32 or more hex digits, with which the aggregators were started",
	},
	{
		Name: "ALLCAST_DATAPATH", Option: "Datapath", Example: "auto", Default: "`host`",
		Meaning: "code that puts received data in place: `host`, the process; `bpf`, the kernel (eBPF), which needs " +
			"CAP_BPF and CAP_PERFMON; `auto`, the kernel if it can and no other rank of the job has this address",
		read: option(func(s *Settings) *string { return &s.Datapath }, anyText),
	},
	{
		Name: "ALLCAST_HOOK", Option: "Hook", Example: "tcx", Default: "`sockfilter`",
		Meaning: "place where the kernel looks at packets: `sockfilter`, `tcx` or `xdp`; " +
			"the last two need CAP_NET_ADMIN too. Ignored with the host datapath",
		read: func(s *Settings, value string, _ Env) error {
			if s.Datapath != "" && s.Datapath != Host {
				s.Hook = cmp.Or(s.Hook, value)
			}
			return nil
		},
	},
	{
		Name: "ALLCAST_RECEIVE_CORES", Option: "ReceiveCores", Example: "2,3", Default: "the kernel's choice",
		Meaning: "processors on which threads of the kernel take packets from the interface; needs root",
		read:    option(func(s *Settings) *[]int { return &s.ReceiveCores }, parseProcessors),
	},
	{
		Name: "ALLCAST_TIMEOUT", Option: "Timeout", Example: "30s", Default: "`10s`",
		Meaning: "silence after which a rank is lost; a closed connection counts at once",
		read:    option(func(s *Settings) *time.Duration { return &s.Timeout }, parseTimeout),
	},
	{
		Name: "ALLCAST_TUNING", Option: "Tuning", Example: "allgather:4K-inf:mcast,ring;broadcast:mcast",
		Default: "`auto` for all",
		Meaning: "algorithms by operation and size; of several, the first that works is used",
		read: func(s *Settings, value string, _ Env) (err error) {
			if s.Tuning == "" {
				s.Tuning = value
				s.Rules, err = parseTuning(value)
			}
			return err
		},
	},
	{
		Name: "ALLCAST_CALIBRATE", Option: "NoCalibration", Example: "off", Default: "`on`",
		Meaning: "`off`: skip the algorithm benchmark that `Join` runs; `auto` then uses a model. One rank is enough",
		read:    onOff(func(s *Settings, on bool) { s.NoCalibration = s.NoCalibration || !on }),
	},
	{
		Name: "ALLCAST_DEBUG", Option: "Logger", Example: "info", Default: "`warn`",
		Meaning: "level of the log on standard error: `warn`, `info`, `debug` or `trace`",
		read: func(s *Settings, value string, _ Env) error {
			if s.Logger != nil {
				return nil
			}
			level, ok := levels[value]
			if !ok {
				return errors.New("want warn, info, debug or trace")
			}
			s.Logger = newLogger(level, s.Version)
			return nil
		},
	},
	{
		Name: "ALLCAST_MPI", Example: "stats", Default: "none",
		Meaning: "for MPI programs with `liballcast_mpi.so`: `stats` prints a table at `MPI_Finalize`, `eager` joins " +
			"at `MPI_Init`, `off` passes all calls through; several are separated by commas",
	},
	{
		Name: "ALLCAST_MPI_THRESHOLD", Example: "64K", Default: "`auto`: measured by each communicator",
		Meaning: "least total bytes of a call of an MPI program that uses multicast",
	},
	{
		Name: "ALLCAST_METRICS", Example: "127.0.0.1:9400", Default: "no server",
		Meaning: "address of a Prometheus metrics server: `HOST:PORT`, `:PORT` or `unix:PATH`; " +
			"the local rank is added to the port",
		read: func(s *Settings, value string, env Env) (err error) {
			if s.LocalRank < 0 {
				if s.LocalRank, err = localRank(env); err != nil {
					return err
				}
			}
			s.Metrics, err = observe.ParseAddr(value, s.Rank, s.LocalRank)
			return err
		},
	},
	{
		Name: "ALLCAST_INSPECT", Example: "off", Default: "`on`",
		Meaning: "`off`: `allcast inspect` cannot find the process",
		read:    onOff(func(s *Settings, on bool) { s.Inspect = on }),
	},
	{
		Name: "ALLCAST_RECORDER", Example: "/var/tmp/allcast", Default: "none",
		Meaning: "directory for the flight recorder's dump of each failure",
		read: option(func(s *Settings) *string { return &s.Recorder }, func(dir string) (string, error) {
			return dir, observe.CheckDir(dir) // a failed operation would be too late for this error
		}),
	},
	{
		Name: "ALLCAST_FAULT", Example: "drop=1%,dup=1%,reorder=5%,corrupt=1%,seed=7", Default: "none",
		Meaning: "faults to inject into received multicast datagrams, for tests",
		read:    option(func(s *Settings) *fault.Spec { return &s.Fault }, fault.Parse),
	},
}

// option reads a variable into a field, unless the field is set already.
func option[T any](field func(*Settings) *T, parse func(string) (T, error)) func(*Settings, string, Env) error {
	return func(s *Settings, value string, _ Env) (err error) {
		if f := field(s); reflect.ValueOf(f).Elem().IsZero() {
			*f, err = parse(value)
		}
		return err
	}
}

func anyText(value string) (string, error) { return value, nil }

func parseTimeout(value string) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 {
		return 0, errors.New("want a duration such as 10s")
	}
	return d, nil
}

// onOff reads a switch.
func onOff(set func(s *Settings, on bool)) func(*Settings, string, Env) error {
	return func(s *Settings, value string, _ Env) error {
		if value != "on" && value != "off" {
			return errors.New("want on or off")
		}
		set(s, value == "on")
		return nil
	}
}

func parseProcessors(list string) (cpus []int, err error) {
	for f := range strings.SplitSeq(list, ",") {
		cpu, err := strconv.Atoi(f)
		if err != nil {
			return nil, errors.New("want processors such as 2,3")
		}
		cpus = append(cpus, cpu)
	}
	return cpus, nil
}

func parseGroups(list string) (groups []netip.AddrPort, err error) {
	for f := range strings.SplitSeq(list, ",") {
		g, err := netip.ParseAddrPort(f)
		switch {
		case err != nil || g.Port() == 0:
			return nil, units.Refuse(f, "not ADDRESS:PORT")
		case !g.Addr().IsMulticast():
			return nil, fmt.Errorf("%v is not a multicast address", g.Addr())
		case slices.Contains(groups, g):
			return nil, fmt.Errorf("%v is there twice", g)
		}
		groups = append(groups, g)
	}
	return groups, nil
}
