package settings

import (
	"bytes"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/fabric/fault"
	"github.com/allcast/allcast/internal/observe"
	"github.com/allcast/allcast/internal/wire"
	"github.com/allcast/allcast/store"
)

// one is a job of one rank.
func one(change func(*Settings)) Settings {
	s := Settings{Job: Job{Size: 1}}
	if change != nil {
		change(&s)
	}
	return s
}

func TestDefaults(t *testing.T) {
	s, err := Resolve(one(nil), lookupIn(""))
	if err != nil {
		t.Fatal(err)
	}
	if s.Logger == nil || s.Logger.Enabled(t.Context(), slog.LevelInfo) || !s.Logger.Enabled(t.Context(), slog.LevelWarn) {
		t.Error("want a logger of warnings")
	}
	s.Logger = nil
	want := Settings{
		Job:         Job{Size: 1, LocalRank: -1, LocalSize: -1},
		Network:     Network{Fabric: IP, Subgroups: 1},
		Transfer:    Transfer{Datapath: Host},
		Liveness:    Liveness{Timeout: 10 * time.Second, JoinTimeout: time.Minute},
		Observation: Observation{Inspect: true},
	}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("got %+v, want %+v", s, want)
	}
}

// Every record carries the rank once, whichever logger it goes to.
func TestLoggerHasRank(t *testing.T) {
	var log bytes.Buffer
	s, err := Resolve(Settings{
		Job:         Job{Rank: 3, Size: 4, Addr: "127.0.0.1:20000"},
		Observation: Observation{Logger: slog.New(slog.NewTextHandler(&log, nil))},
	}, lookupIn("ALLCAST_DEBUG=trace"))
	if err != nil {
		t.Fatal(err)
	}
	s.Logger.Info("hello")
	if !strings.HasSuffix(log.String(), "level=INFO msg=hello rank=3\n") {
		t.Error(log.String())
	}
}

// The version is the program's, also if the rank is the launcher's. Ranks compare it when they join.
func TestVersionWithLauncher(t *testing.T) {
	s, err := Resolve(Settings{Job: Job{Version: "1.2.3"}}, lookupIn("RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=5"))
	if err != nil {
		t.Fatal(err)
	}
	if s.Version != "1.2.3" || s.Rank != 1 || s.Size != 2 {
		t.Errorf("got %+v", s.Job)
	}
}

const digits = "00112233445566778899aabbccddeeff"

// Options override the environment, and the environment overrides defaults.
func TestPrecedence(t *testing.T) {
	dir := t.TempDir()
	env := lookupIn("ALLCAST_KEY=" + digits + " ALLCAST_IFNAME=eth1 ALLCAST_FABRIC=ip ALLCAST_DEVICE=mlx5_0 " +
		"ALLCAST_GROUPS=239.1.2.3:20000,[ff15::1]:20001 ALLCAST_RACK=leaf1 ALLCAST_RATE=1gbit ALLCAST_SECURE=on " +
		"ALLCAST_INTEGRITY=on ALLCAST_DATAPATH=auto ALLCAST_HOOK=tcx ALLCAST_RECEIVE_CORES=2,3 ALLCAST_TIMEOUT=3s " +
		"ALLCAST_TUNING=broadcast:mcast ALLCAST_CALIBRATE=off ALLCAST_DEBUG=debug ALLCAST_METRICS=:9400 " +
		"ALLCAST_INSPECT=off ALLCAST_RECORDER=" + dir + " ALLCAST_FAULT=drop=1%,seed=7 LOCAL_RANK=2")
	s, err := Resolve(one(nil), env)
	if err != nil {
		t.Fatal(err)
	}
	if !s.Logger.Enabled(t.Context(), slog.LevelDebug) || s.Logger.Enabled(t.Context(), LevelTrace) {
		t.Error("want a logger at level debug")
	}
	if fmt.Sprint(s.Groups) != "[239.1.2.3:20000 [ff15::1]:20001]" {
		t.Error(s.Groups)
	}
	s.Logger, s.Groups = nil, nil
	key, _ := Key(env)
	want := Settings{
		Job: Job{Size: 1, LocalRank: 2, LocalSize: -1},
		Network: Network{
			Interface: "eth1", Fabric: IP, Device: "mlx5_0", Rack: "leaf1", Subgroups: 2, // as many as groups
			Fault: fault.Spec{Drop: 0.01, Seed: 7},
		},
		Protection: Protection{Key: key, Secure: true, Integrity: true},
		Transfer:   Transfer{Rate: 1e9, Datapath: Auto, Hook: "tcx", ReceiveCores: []int{2, 3}},
		Liveness:   Liveness{Timeout: 3 * time.Second, JoinTimeout: time.Minute},
		Observation: Observation{
			Metrics: observe.Addr{Network: "tcp", Address: ":9402"}, Recorder: dir,
		},
		Choice: Choice{
			Tuning: "broadcast:mcast", NoCalibration: true,
			Rules: Rules{{wire.Broadcast, 0, math.MaxInt64, []string{"mcast"}}},
		},
	}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("from the environment: got %+v, want %+v", s, want)
	}

	log := slog.New(slog.DiscardHandler)
	mine := Settings{
		Job:         Job{Rank: 1, Size: 2, Addr: "h:1", Version: "v"},
		Network:     Network{Interface: "eth2", Fabric: IP, Device: "mlx5_1", Rack: "leaf2", Subgroups: 1, NoMulticast: true},
		Protection:  Protection{Key: []byte("sixteen bytes..."), Integrity: true, Secure: true},
		Transfer:    Transfer{Rate: 5, Datapath: BPF, Hook: "xdp", ReceiveCores: []int{7}, Pin: []int{1}},
		Liveness:    Liveness{Timeout: 1, JoinTimeout: 2, Deadline: 3},
		Observation: Observation{Logger: log},
		Choice:      Choice{Tuning: "allgather:ring", NoCalibration: true},
	}
	s, err = Resolve(mine, env)
	mine.LocalRank, mine.LocalSize, mine.Groups, mine.Fault = 2, -1, s.Groups, want.Fault
	mine.Observation = Observation{log, observe.Addr{Network: "tcp", Address: ":9402"}, false, dir}
	mine.Rules = Rules{{wire.Allgather, 0, math.MaxInt64, []string{"ring"}}}
	if err != nil || !reflect.DeepEqual(s, mine) {
		t.Errorf("from options: got %+v, %v, want %+v", s, err, mine)
	}
	if s, err := Resolve(one(nil), lookupIn("ALLCAST_HOOK=tcx")); err != nil || s.Hook != "" {
		t.Errorf("hook %q, %v: want none with the host datapath", s.Hook, err)
	}
	if s, err := Resolve(one(nil), lookupIn("ALLCAST_DATAPATH=auto")); err != nil || s.Hook != "sockfilter" {
		t.Errorf("hook %q, %v: want the default", s.Hook, err)
	}
}

// A bad value of a variable is an error that names it.
func TestBadVariables(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const base = "RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1234 "
	for _, c := range []struct{ name, value, want string }{
		{"RANK", "two", "number"},
		{"WORLD_SIZE", "0", "number"},
		{"MASTER_PORT", "http", "number"},
		{"ALLCAST_KEY", "short", "hex digits"},
		{"ALLCAST_FABRIC", "pigeons", "ip or verbs"},
		{"ALLCAST_GROUPS", "239.1.2.3", "not ADDRESS:PORT"},
		{"ALLCAST_GROUPS", "239.1.2.3:0", "not ADDRESS:PORT"},
		{"ALLCAST_GROUPS", "239.1.2.3:20000,", "not ADDRESS:PORT"},
		{"ALLCAST_GROUPS", "10.0.0.1:20000", "not a multicast address"},
		{"ALLCAST_GROUPS", "239.1.2.3:20000,239.1.2.3:20000", "twice"},
		{"ALLCAST_COMM_GROUPS", "239.1.2.3", "such as 239.196.0.0/16"},
		{"ALLCAST_COMM_GROUPS", "10.0.0.0/8", "want a prefix within 224.0.0.0/4"},
		{"ALLCAST_COMM_GROUPS", "224.0.0.0/3", "want a prefix within 224.0.0.0/4"},
		{"ALLCAST_COMM_GROUPS", "fe00::/7", "want a prefix within 224.0.0.0/4"},
		{"ALLCAST_RACK", strings.Repeat("x", 257), "at most 256"},
		{"ALLCAST_RATE", "fast", "want"},
		{"ALLCAST_SECURE", "yes", "on or off"},
		{"ALLCAST_SECURE", "on", "ALLCAST_KEY"},
		{"ALLCAST_INTEGRITY", "1", "on or off"},
		{"ALLCAST_AGGREGATORS", "10.0.0.1:7900=0-1", "ALLCAST_SITE_KEY_FILE"},
		{"ALLCAST_SITE_KEY_FILE", file, "at least 32"},
		{"ALLCAST_SITE_KEY_FILE", file + ".missing", "no such file"},
		{"ALLCAST_DATAPATH", "kernel", "host, bpf or auto"},
		{"ALLCAST_RECEIVE_CORES", "2-3", "such as 2,3"},
		{"ALLCAST_RECEIVE_CORES", "-1", "from 0"},
		{"ALLCAST_TIMEOUT", "10", "such as 10s"},
		{"ALLCAST_TIMEOUT", "-1s", "such as 10s"},
		{"ALLCAST_TUNING", "x", "unknown operation"},
		{"ALLCAST_CALIBRATE", "never", "on or off"},
		{"ALLCAST_DEBUG", "loud", "warn, info, debug or trace"},
		{"ALLCAST_METRICS", "9400", "HOST:PORT"},
		{"ALLCAST_METRICS", "127.0.0.1:99999", "65535"},
		{"ALLCAST_INSPECT", "maybe", "on or off"},
		{"ALLCAST_RECORDER", file, "not a directory"},
		{"ALLCAST_FAULT", "drop=2", "drop"},
	} {
		text := base + c.name + "=" + c.value
		if c.name == SiteKeyFileVar { // read for aggregators only
			if _, err := Resolve(Settings{}, lookupIn(text)); err != nil {
				t.Errorf("a site key without aggregators: %v", err)
			}
			text += " " + AggregatorsVar + "=10.0.0.1:7900=0-1"
		}
		_, err := Resolve(Settings{}, lookupIn(text))
		if err == nil || !strings.Contains(err.Error(), c.name) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s=%s: %v: want an error that names it and says %q", c.name, c.value, err, c.want)
		}
		if value := strconv.Quote(c.value); err != nil && strings.Contains(err.Error(), value+": "+value) {
			t.Errorf("%v: it shows the value twice", err)
		}
	}
	if _, err := Resolve(Settings{}, lookupIn("")); err == nil || !strings.Contains(err.Error(), "allcast run") {
		t.Errorf("no variables: %v", err)
	}
	for vars, want := range map[string]string{
		"ALLCAST_METRICS=:9400 LOCAL_RANK=first": "LOCAL_RANK",
		"ALLCAST_DATAPATH=auto ALLCAST_HOOK=nic": "sockfilter, tcx, xdp",
	} {
		if _, err := Resolve(one(nil), lookupIn(vars)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v: want %q", vars, err, want)
		}
	}
}

// A bad option is an error that says what is wrong.
func TestBadOptions(t *testing.T) {
	two := Job{Rank: 1, Size: 2}
	at := func(addr string) Job { return Job{Rank: 1, Size: 2, Addr: addr} }
	for _, c := range []struct {
		change func(*Settings)
		want   string
	}{
		{func(s *Settings) { s.Size = -1 }, "Options.Size -1"},
		{func(s *Settings) { s.Size = MaxSize + 1 }, "Options.Size"},
		{func(s *Settings) { s.Rank = -1 }, "Options.Rank -1"},
		{func(s *Settings) { s.Rank = 1 }, "Options.Rank 1 of 1"},
		{func(s *Settings) { s.Version = strings.Repeat("x", 256) }, "version"},
		{func(s *Settings) { s.Job = two }, "MASTER_ADDR"},
		{func(s *Settings) { s.Job = at("nowhere") }, "host:port"},
		{func(s *Settings) { s.Job = at("127.0.0.1:0") }, "port from 1"},
		{func(s *Settings) { s.Job = at("127.0.0.1:http") }, "port from 1"},
		{func(s *Settings) { s.Job, s.Store = at("127.0.0.1:20000"), noStore{} }, "drop Addr"},
		{func(s *Settings) { s.Job, s.Store, s.Attempt = two, noStore{}, -1 }, "Options.Attempt -1"},
		{func(s *Settings) { s.Job, s.Store = Job{Addr: "127.0.0.1:20000"}, noStore{} }, "drop Addr"},
		{func(s *Settings) { s.Key = []byte{} }, "Options.Key"},
		{func(s *Settings) { s.Key = []byte("short") }, "Options.Key has 5 bytes"},
		{func(s *Settings) { s.Secure = true }, "ALLCAST_KEY"},
		{func(s *Settings) { s.Fabric, s.Secure, s.Key = Verbs, true, make([]byte, 16) }, "verbs"},
		{func(s *Settings) { s.Fabric = "pigeons" }, "ip or verbs"},
		{func(s *Settings) { s.Subgroups = -1 }, "Options.Subgroups -1"},
		{func(s *Settings) { s.Subgroups = 65 }, "1 to 64"},
		{func(s *Settings) { s.Groups, _ = parseGroups("239.1.2.3:20000"); s.Subgroups = 2 }, "2 subgroups, and only 1"},
		{func(s *Settings) { s.Chunk = -1 }, "Options.Chunk -1"},
		{func(s *Settings) { s.ReceiveBuffer = -1 }, "Options.ReceiveBuffer -1"},
		{func(s *Settings) { s.TTL = 256 }, "Options.TTL 256: want 0 to 255"},
		{func(s *Settings) { s.DSCP = 64 }, "Options.DSCP 64: want 0 to 63"},
		{func(s *Settings) { s.Rate = -1 }, "Options.Rate -1"},
		{func(s *Settings) { s.Rate = math.NaN() }, "Options.Rate"},
		{func(s *Settings) { s.Datapath = "dpu" }, "host, bpf or auto"},
		{func(s *Settings) { s.Hook = "tcx" }, "without the bpf datapath"},
		{func(s *Settings) { s.Datapath, s.Hook = Host, "tcx" }, "without the bpf datapath"},
		{func(s *Settings) { s.Datapath, s.Hook = BPF, "nic" }, "sockfilter, tcx, xdp"},
		{func(s *Settings) { s.Pin = []int{0, -100} }, "Options.Pin"},
		{func(s *Settings) { s.ReceiveCores = []int{-1} }, "Options.ReceiveCores"},
		{func(s *Settings) { s.Timeout = -1 }, "Options.Timeout"},
		{func(s *Settings) { s.JoinTimeout = -1 }, "Options.JoinTimeout"},
		{func(s *Settings) { s.Deadline = -1 }, "Options.Deadline"},
		{func(s *Settings) { s.Tuning = "allgather:tree" }, "Options.Tuning"},
	} {
		if _, err := Resolve(one(c.change), lookupIn("")); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

type noStore struct{ store.Store }

// With a store, no address is needed, from the options or from a launcher.
func TestStore(t *testing.T) {
	const slurm = "SLURM_PROCID=1 SLURM_NTASKS=4 SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_LOCALID=0"
	for env, job := range map[string]Job{
		"":                    {Rank: 1, Size: 4},
		"RANK=1 WORLD_SIZE=4": {}, // MASTER_ADDR is missing
		"RANK=1 WORLD_SIZE=4 MASTER_ADDR=not:a:host": {},
		slurm: {},
	} {
		s, err := Resolve(Settings{Job: job, Meeting: Meeting{Store: noStore{}, Attempt: 3}}, lookupIn(env))
		if err != nil || s.Rank != 1 || s.Size != 4 || s.Addr != "" || s.Attempt != 3 || s.Store == nil {
			t.Errorf("%s: %+v, %v", env, s.Job, err)
		}
	}
}

func TestParseTuning(t *testing.T) {
	got, err := parseTuning("allgather:4K-inf:mcast,ring; broadcast:mcast;;allreduce:0-64K:ring")
	want := Rules{
		{wire.Allgather, 4096, math.MaxInt64, []string{"mcast", "ring"}},
		{wire.Broadcast, 0, math.MaxInt64, []string{"mcast"}},
		{wire.Allreduce, 0, 65536, []string{"ring"}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	if r := got.For(wire.Allreduce, 65536); r != &got[2] || got.For(wire.Allreduce, 65537) != nil {
		t.Errorf("got %v", r)
	}
	for bad, says := range map[string]string{
		"gathr:mcast":             "allgather", // the message lists the operations
		"allgather:tree":          "want mcast, bruck, linear, pat, recursive-doubling, ring or auto",
		"allgather":               "operation:algorithm",
		"allgather:1-2-3:mcast":   "2-3",
		"allgather:9K-4K:mcast":   "larger",
		"allgather:x-inf:mcast":   "x",
		"allgather:4K:mcast":      "from-to",
		"allreduce:mcast":         "recursive-halving",
		"barrier:1-2:mcast:extra": "operation:algorithm",
	} {
		if _, err := parseTuning(bad); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v: want something about %q", bad, err, says)
		}
	}
}

// FromLauncher and Key read what Environ writes, whatever job surrounds it.
func TestEnviron(t *testing.T) {
	base := []string{
		"RANK=9", "ALLCAST_KEY_FILE=/none", "TORCHELASTIC_RUN_ID=x", "GROUP_RANK=1", "HOME=/root", "ALLCAST_RATE=1gbit",
	}
	job := Job{Rank: 1, Size: 3, LocalRank: 1, LocalSize: 3, Addr: "[::1]:4000", Launcher: "torchrun"}
	key := []byte("sixteen bytes...")
	vars := job.Environ(base, key)
	if !slices.Equal(vars[:2], base[4:]) || len(base) != 6 || base[0] != "RANK=9" {
		t.Errorf("got %v of %v", vars, base)
	}
	env := lookupIn(strings.Join(vars, " "))
	got, found, err := FromLauncher(env)
	if err != nil || !found || got != job {
		t.Errorf("got %+v, %v, %v; want %+v", got, found, err, job)
	}
	if k, err := Key(env); err != nil || !slices.Equal(k, key) {
		t.Errorf("got key %q, %v", k, err)
	}
}

var update = flag.Bool("update", false, "rewrite docs/settings.md")

const docs = "../../docs/settings.md"

// The documentation lists exactly the variables that Resolve reads.
func TestDocumentation(t *testing.T) {
	var b strings.Builder
	b.WriteString(preface)
	for _, v := range Variables {
		option := "-"
		if v.Option != "" {
			option = "`Options." + v.Option + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | `%s` |\n", v.Name, option, v.Meaning, v.Default, v.Example)
	}
	if *update {
		if err := os.WriteFile(docs, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text := read(t, docs)
	if text != b.String() {
		t.Error("docs/settings.md is out of date: run go test ./internal/settings -run TestDocumentation -update")
	}
	readme := read(t, "../../README.md") + read(t, "../../docs/operations.md")
	_, options, _ := strings.Cut(read(t, "../../options.go"), "\n// Options ")
	options, fields, _ := strings.Cut(options, "type Options struct {")
	name := regexp.MustCompile(`ALLCAST_[A-Z_]+[A-Z]`)
	for _, v := range Variables {
		for where, text := range map[string]string{
			"README.md or docs/operations.md": readme, "the godoc of Options": options,
		} {
			if !slices.Contains(name.FindAllString(text, -1), v.Name) {
				t.Errorf("%s does not mention %s", where, v.Name)
			}
		}
		if v.Option != "" && !regexp.MustCompile(`(?m)^\t(\w+, )?`+v.Option+`(, \w+)* `).MatchString(fields) {
			t.Errorf("%s: there is no Options.%s", v.Name, v.Option)
		}
		if v.Meaning == "" || v.Default == "" || v.Example == "" {
			t.Errorf("%s lacks a meaning, a default or an example", v.Name)
		}
	}
	for _, n := range name.FindAllString(readme+options, -1) {
		if !slices.ContainsFunc(Variables, func(v Variable) bool { return v.Name == n }) {
			t.Errorf("the documentation mentions %s, which nothing reads", n)
		}
	}
}

const preface = `# Settings

Set these variables in the environment of every rank. A field of ` + "`allcast.Options`" + ` overrides its
variable, except that ` + "`on`" + ` and ` + "`off`" + ` switches cannot undo what the field asks for. A bad value is
an error. Rank, size and the address of rank 0 come from the variables of torchrun, Open MPI, PMI or
Slurm. A program that gives Allcast a store (` + "`Options.Store`" + `) needs no address of rank 0; see
[joining.md](joining.md).

| variable | option | meaning | default | example |
|---|---|---|---|---|
`

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The examples of the table are valid.
func TestExamples(t *testing.T) {
	for _, v := range Variables {
		if v.read == nil || v.Name == "ALLCAST_RECORDER" { // which Resolve would create
			continue
		}
		s := one(func(s *Settings) { s.Datapath = Auto; s.Key = make([]byte, 16) })
		if v.Name == "ALLCAST_FABRIC" && !HasVerbs || v.Name == "ALLCAST_DATAPATH" {
			continue
		}
		if v.Name == AggregatorsVar {
			s.Size, s.Addr, s.SiteKey = 8, "127.0.0.1:1", make([]byte, minKey)
		}
		if _, err := Resolve(s, lookupIn(v.Name+"="+v.Example)); err != nil {
			t.Error(err)
		}
	}
}

// Aggregators are parsed for the size of the job.
func TestAggregators(t *testing.T) {
	file := filepath.Join(t.TempDir(), "site.key")
	if err := os.WriteFile(file, []byte(strings.Repeat("0f", minKey)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	resolve := func(tree string) (Settings, error) {
		s := one(func(s *Settings) { s.Size, s.Addr = 4, "127.0.0.1:1" })
		return Resolve(s, lookupIn(SiteKeyFileVar+"="+file+" "+AggregatorsVar+"="+tree))
	}
	s, err := resolve("10.0.0.1:1=0-1;10.0.0.2:1=2-3>10.0.0.1:1")
	if err != nil || s.Tree == nil || len(s.Tree.Nodes) != 2 || len(s.SiteKey) != minKey {
		t.Errorf("%+v, %v", s.Aggregation, err)
	}
	for tree, want := range map[string]string{
		"10.0.0.1:1=0-2": "3", "10.0.0.1:1=0-4": "4", "10.0.0.1=0-3": "10.0.0.1", "10.0.0.1:1=0-3>10.0.0.9:1": "10.0.0.9",
	} {
		_, err := resolve(tree)
		if err == nil || !strings.Contains(err.Error(), AggregatorsVar) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v: want an error that names %s and %s", tree, err, AggregatorsVar, want)
		}
	}
	if s, err := resolve(""); err != nil || s.Tree != nil { // a key alone does nothing
		t.Errorf("%+v, %v", s.Aggregation, err)
	}
}
