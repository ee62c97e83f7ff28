package settings

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allcast/allcast/internal/inc"
)

// Resolve completes s from the environment and with defaults, and checks the result. Fields that are
// not zero stay as they are. Each error names the option or the variable that has to change.
func Resolve(s Settings, env Env) (Settings, error) {
	err := s.identify(env)
	if err == nil {
		err = s.readVariables(env)
	}
	if err == nil && s.SiteKey == nil && s.Aggregators != "" {
		s.SiteKey, err = SiteKey(env)
	}
	if err == nil {
		s.setDefaults()
		err = s.check()
	}
	if err != nil {
		return Settings{}, err
	}
	return s, nil
}

// identify finds the process's rank and the job's key.
func (s *Settings) identify(env Env) (err error) {
	if s.Size == 0 {
		if s.Store != nil && s.Addr != "" {
			return errStoreAndAddr
		}
		job, found, err := fromLauncher(env, s.Store == nil)
		switch {
		case err != nil:
			return err
		case !found:
			return errors.New("no rank variables in the environment: start the program with torchrun, mpirun, srun " +
				"or \"allcast run -n RANKS -- PROGRAM\", or set Options.Rank, Size, and Addr or Store")
		}
		job.Version = s.Version
		s.Job = job
		if n, err := strconv.Atoi(env.Get(torchRestarts)); err == nil && n > 0 && s.Attempt == 0 {
			s.Attempt = n
		}
	} else {
		s.LocalRank, s.LocalSize = -1, -1
	}
	if s.Key == nil {
		if s.Key, err = Key(env); err != nil {
			return err
		}
	}
	return nil
}

func (s *Settings) readVariables(env Env) (err error) {
	s.Inspect = true
	if s.Rules, err = parseTuning(s.Tuning); err != nil {
		return fmt.Errorf("Options.Tuning: %w", err)
	}
	for i := range Variables {
		v := &Variables[i]
		value := env.Get(v.Name)
		if value == "" || v.read == nil {
			continue
		}
		if err := v.read(s, value, env); err != nil {
			return badVariable(v.Name, value, err)
		}
	}
	return nil
}

// badVariable names the variable whose value was refused. Errors of package units show the text that they refuse.
func badVariable(name, value string, err error) error {
	var shown interface{ Refused() string }
	if errors.As(err, &shown) && shown.Refused() == value {
		return fmt.Errorf("%s=%w", name, err)
	}
	return fmt.Errorf("%s=%q: %w", name, value, err)
}

func (s *Settings) setDefaults() {
	s.Fabric = cmp.Or(s.Fabric, IP)
	s.Datapath = cmp.Or(s.Datapath, Host)
	if s.Datapath != Host {
		s.Hook = cmp.Or(s.Hook, Hooks[0])
	}
	s.Subgroups = cmp.Or(s.Subgroups, min(len(s.Groups), MaxSubgroups), 1)
	s.Timeout = cmp.Or(s.Timeout, 10*time.Second)
	s.JoinTimeout = cmp.Or(s.JoinTimeout, time.Minute)
	if s.Logger == nil {
		s.Logger = newLogger(levels["warn"], s.Version)
	}
	s.Logger = s.Logger.With("rank", s.Rank)
}

// check returns the first setting that is invalid, by itself or beside the others.
func (s *Settings) check() error {
	return cmp.Or(
		s.checkJob(), s.checkProtection(), s.checkNetwork(), s.checkAggregation(),
		notNegative("Options.Chunk", s.Chunk), upTo("Options.TTL", s.TTL, 255), upTo("Options.DSCP", s.DSCP, 63),
		notNegative("Options.ReceiveBuffer", s.ReceiveBuffer), s.checkTransfer(), notNegative("Options.Timeout", s.Timeout),
		notNegative("Options.JoinTimeout", s.JoinTimeout), notNegative("Options.Deadline", s.Deadline),
	)
}

func notNegative[T int | time.Duration](option string, value T) error {
	if value < 0 {
		return fmt.Errorf("%s %v: want 0 or more", option, value)
	}
	return nil
}

func upTo(option string, value, limit int) error {
	if value < 0 || value > limit {
		return fmt.Errorf("%s %d: want 0 to %d", option, value, limit)
	}
	return nil
}

var errStoreAndAddr = errors.New("Options.Store and Options.Addr are both set, but ranks meet in one place: " +
	"drop Addr to meet through the store, or Store to meet at rank 0")

func (s *Settings) checkJob() error {
	switch {
	case s.Size < 1 || s.Size > MaxSize:
		return fmt.Errorf("Options.Size %d: want 1 to %d ranks", s.Size, MaxSize)
	case s.Rank < 0 || s.Rank >= s.Size:
		return fmt.Errorf("Options.Rank %d of %d: want 0 to %d", s.Rank, s.Size, s.Size-1)
	case len(s.Version) > maxVersion:
		return fmt.Errorf("a version of %d bytes: want at most %d", len(s.Version), maxVersion)
	case s.Store != nil && s.Addr != "":
		return errStoreAndAddr
	case s.Attempt < 0:
		return fmt.Errorf("Options.Attempt %d: want 0 or more", s.Attempt)
	case s.Size == 1, s.Store != nil:
		return nil
	case s.Addr == "":
		return errors.New("no address of rank 0: set Options.Addr or Store, or MASTER_ADDR and MASTER_PORT")
	}
	_, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return fmt.Errorf("Options.Addr %q: want host:port of rank 0: %w", s.Addr, err)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("Options.Addr %q: want a port from 1 to 65535", s.Addr)
	}
	return nil
}

func (s *Settings) checkProtection() error {
	switch {
	case s.Key != nil && len(s.Key) < minKey:
		return fmt.Errorf("Options.Key has %d bytes: want at least %d", len(s.Key), minKey)
	case s.Secure && s.Key == nil:
		return errors.New("encryption (Options.Secure, ALLCAST_SECURE) needs a key: set ALLCAST_KEY or ALLCAST_KEY_FILE " +
			"to the same on all ranks, or start them with \"allcast run\", which makes one")
	case s.Secure && s.Fabric == Verbs:
		return errors.New("encryption (Options.Secure, ALLCAST_SECURE) does not work on the fabric verbs: " +
			"peers read each other's memory; use the fabric ip")
	}
	return nil
}

func (s *Settings) checkNetwork() error {
	switch {
	case s.Fabric != IP && s.Fabric != Verbs:
		return fmt.Errorf("fabric %q (Options.Fabric, ALLCAST_FABRIC): want ip or verbs", s.Fabric)
	case s.Fabric == Verbs && !HasVerbs:
		return errors.New("fabric verbs (Options.Fabric, ALLCAST_FABRIC): " + BuildVerbs)
	case len(s.Rack) > maxRack:
		return fmt.Errorf("a rack name (Options.Rack, ALLCAST_RACK) of %d bytes: want at most %d", len(s.Rack), maxRack)
	case s.Subgroups < 0 || s.Subgroups > MaxSubgroups:
		return fmt.Errorf("Options.Subgroups %d: want 1 to %d", s.Subgroups, MaxSubgroups)
	case s.Groups != nil && s.Subgroups > len(s.Groups):
		return fmt.Errorf("%d subgroups, and only %d multicast groups (Options.Groups, ALLCAST_GROUPS): "+
			"give one per subgroup", s.Subgroups, len(s.Groups))
	}
	return s.checkCommGroups()
}

// checkAggregation parses the tree of aggregators.
func (s *Settings) checkAggregation() (err error) {
	const where = "aggregators (Options.Aggregators, ALLCAST_AGGREGATORS)"
	switch {
	case s.Aggregators == "":
		return nil
	case s.Fabric == Verbs:
		return errors.New(where + " do not work on the fabric verbs: use the fabric ip")
	case s.SiteKey == nil:
		return errors.New(where + " need the site key that they were started with: set ALLCAST_SITE_KEY_FILE to a file " +
			"that holds it, or Options.SiteKey")
	case len(s.SiteKey) < minKey:
		return fmt.Errorf("Options.SiteKey has %d bytes: want at least %d", len(s.SiteKey), minKey)
	}
	if s.Tree, err = inc.ParseTree(s.Aggregators, s.Size); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	return nil
}

func (s *Settings) checkCommGroups() error {
	p := s.CommGroups
	if p == (netip.Prefix{}) {
		return nil
	}
	const where = "multicast groups of communicators (Options.CommGroups, ALLCAST_COMM_GROUPS)"
	inside := func(all string) bool {
		return p.IsValid() && netip.MustParsePrefix(all).Contains(p.Addr()) && p.Bits() >= netip.MustParsePrefix(all).Bits()
	}
	if !inside("224.0.0.0/4") && !inside("ff00::/8") {
		return fmt.Errorf("%s %v: want a prefix within 224.0.0.0/4 or ff00::/8", where, p)
	}
	for _, g := range s.Groups {
		switch {
		case g.Addr().Is4() != p.Addr().Is4():
			return fmt.Errorf("%s %v: of another IP version than the group %v", where, p, g)
		case p.Contains(g.Addr()):
			return fmt.Errorf("%s %v: contain the group %v of the job", where, p, g)
		}
	}
	return nil
}

func (s *Settings) checkTransfer() error {
	negative := func(cpu int) bool { return cpu < 0 }
	switch {
	case !(s.Rate >= 0):
		return fmt.Errorf("Options.Rate %g: want 0 or more bits per second", s.Rate)
	case s.Datapath != Host && s.Datapath != BPF && s.Datapath != Auto:
		return fmt.Errorf("datapath %q (Options.Datapath, ALLCAST_DATAPATH): want host, bpf or auto", s.Datapath)
	case s.Datapath == BPF && s.Fabric == Verbs:
		return errors.New("the bpf datapath (Options.Datapath, ALLCAST_DATAPATH) does not work on the fabric verbs, " +
			"whose data does not pass the kernel: use host")
	case s.Hook != "" && s.Datapath == Host:
		return fmt.Errorf("hook %q (Options.Hook, ALLCAST_HOOK) without the bpf datapath: "+
			"set Options.Datapath or ALLCAST_DATAPATH to bpf or auto", s.Hook)
	case slices.ContainsFunc(s.Pin, negative):
		return fmt.Errorf("Options.Pin %v: want processors from 0", s.Pin)
	case slices.ContainsFunc(s.ReceiveCores, negative):
		return fmt.Errorf("receive cores %v (Options.ReceiveCores, ALLCAST_RECEIVE_CORES): want processors from 0",
			s.ReceiveCores)
	}
	if err := CheckHook(s.Hook); err != nil {
		return fmt.Errorf("Options.Hook, ALLCAST_HOOK: %w", err)
	}
	return nil
}

// CheckHook refuses a name that is not one of Hooks; "" is valid and means the default.
func CheckHook(name string) error {
	if name != "" && !slices.Contains(Hooks, name) {
		return fmt.Errorf("unknown hook %q; valid: %s", name, strings.Join(Hooks, ", "))
	}
	return nil
}
