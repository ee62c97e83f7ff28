package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/fabric/ip"
	"github.com/allcast/allcast/internal/rendezvous"
	"github.com/allcast/allcast/internal/settings"
	"github.com/allcast/allcast/internal/units"
)

const (
	joinTime    = 15 * time.Second
	defaultRate = 100e6
	overhead    = 28 // bytes of the headers of IPv4 and UDP
	smallSize   = 64
	copies      = 20 // datagrams of a test, so that loss does not look like a cut
)

// checkup is the check of a network by one rank.
type checkup struct {
	*Command
	session *rendezvous.Session
	rank    int
	self    card
	cards   []card // by rank
	probe   *prober
	phase   uint32
}

// card describes a rank's machine to the others.
type card struct {
	Name  string
	Addr  netip.AddrPort // of its UDP socket
	TCP   int            // port of its TCP socket
	Iface string
	MTU   int
	IGMP  string // version in use, such as V3; "" if unknown
	Error string // reason why this machine cannot take part
	Twin  bool   // another rank with the same address takes part
}

func (c *card) active() bool { return c.Error == "" && !c.Twin }

// runRank checks the network as one rank of a job. Rank 0 prints the findings.
func (c *Command) runRank(e *cli.Env) error {
	s, err := settings.Resolve(settings.Settings{
		Job: settings.Job{Version: allcast.Version}, Meeting: settings.Meeting{Protocol: allcast.Protocol},
	}, settings.Process)
	if err != nil {
		return cli.Usagef("%v", err)
	}
	if c.LongFor < time.Second {
		return cli.Usagef("--long-for %v: want 1s or more", c.LongFor)
	}
	if s.Store == nil {
		s.JoinTimeout = joinTime
	}
	ctx, stop := cli.UntilSignal()
	defer stop()
	session, err := rendezvous.Join(ctx, rendezvous.Config{
		Job: s.Job, Meeting: s.Meeting, Protection: s.Protection, Liveness: s.Liveness, Logger: s.Logger, Program: "doctor",
		LateNames: settings.InKubernetes(settings.Process),
	})
	if err != nil {
		return c.notJoined(e, s.Addr, err)
	}
	defer func() { _ = session.Close() }()
	u := &checkup{Command: c, session: session, rank: s.Rank}
	findings, works, err := u.run(ctx, e, &s)
	if err != nil {
		return cmp.Or(cli.Interrupted(ctx), err)
	}
	if s.Rank != 0 {
		return nil
	}
	if err := printFindings(e, findings); err != nil {
		return err
	}
	if !works {
		e.Message("Allcast cannot multicast between all machines; point-to-point algorithms may still work")
		return cli.StatusError(cli.StatusFailed)
	}
	return nil
}

// notJoined reports that the ranks cannot even meet.
func (c *Command) notJoined(e *cli.Env, addr string, err error) error {
	if !errors.Is(err, rendezvous.ErrTimeout) {
		return err
	}
	_, port, _ := net.SplitHostPort(addr)
	f := missing("meeting rank 0", err.Error(), fmt.Sprintf("let a firewall on rank 0's machine accept TCP from the "+
		"other machines, here to port %s (sudo nft add rule inet filter input ip saddr NETWORK accept; firewall-cmd "+
		"--zone=trusted --add-source=NETWORK); if ranks are missing, look at their machines", port))
	if err := printFindings(e, []finding{f}); err != nil {
		return err
	}
	return cli.StatusError(cli.StatusFailed)
}

// run does all checks. All ranks get the same findings.
func (u *checkup) run(ctx context.Context, e *cli.Env, s *settings.Settings) ([]finding, bool, error) {
	seed := u.session.Seed()
	group := ip.GroupsFor(uint64(seed[8])|uint64(seed[9])<<8|uint64(seed[10])<<16, 1, false)[0]
	if len(s.Groups) > 0 {
		group = s.Groups[0]
	}
	u.self = u.describe(s)
	if u.self.Error == "" {
		var err error
		if u.probe, err = newProber(u.self, group, seed, u.rank); err != nil {
			u.self.Error = err.Error()
		} else {
			defer u.probe.close()
			u.self.Addr, u.self.TCP = u.probe.addr(), u.probe.tcpPort()
			// The interface's version may change when it joins a group.
			u.self.IGMP = igmpVersion(u.self.Iface)
		}
	}
	var err error
	if u.cards, err = swap(ctx, u.session, u.self); err != nil {
		return nil, false, err
	}
	markTwins(u.cards)
	r := &report{Cards: u.cards, Group: group, Rate: u.rate()}
	for _, step := range []func(context.Context, *report) error{
		u.reach, u.connect, u.sizes, u.loss, func(ctx context.Context, r *report) error { return u.watch(ctx, e, r) },
		u.queriers,
	} {
		if err := step(ctx, r); err != nil {
			return nil, false, err
		}
	}
	findings, works := r.findings()
	return findings, works, nil
}

func (u *checkup) rate() units.Rate {
	if u.Rate == nil {
		return defaultRate
	}
	return *u.Rate
}

// describe finds this machine's name and the interface towards rank 0.
func (u *checkup) describe(s *settings.Settings) card {
	name, _ := os.Hostname()
	if u.rank < len(u.Names) {
		name = u.Names[u.rank]
	}
	c := card{Name: name}
	local := u.session.LocalAddr().Unmap()
	ifi, err := findInterface(func(ifi *net.Interface) bool {
		if s.Interface != "" && !strings.HasPrefix(s.Interface, "^") {
			return ifi.Name == s.Interface
		}
		list, _ := ifi.Addrs()
		for _, a := range list {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap() == local {
				return true
			}
		}
		return false
	})
	if err != nil || ifi == nil {
		c.Error = fmt.Sprintf("no interface %s with the address %v", s.Interface, local)
		return c
	}
	if !local.Is4() || s.Interface != "" {
		local = netip.Addr{}
		for _, a := range addresses(ifi) {
			if a.Is4() && !local.IsValid() {
				local = a
			}
		}
	}
	if !local.IsValid() {
		c.Error = "interface " + ifi.Name + " has no IPv4 address, which these checks need"
		return c
	}
	c.Addr, c.Iface, c.MTU = netip.AddrPortFrom(local, 0), ifi.Name, ifi.MTU
	return c
}

// markTwins leaves one rank per address, and makes all names differ.
func markTwins(cards []card) {
	seen, names := map[netip.Addr]bool{}, map[string]int{}
	for i := range cards {
		c := &cards[i]
		if c.Error != "" {
			continue
		}
		c.Twin = seen[c.Addr.Addr()]
		seen[c.Addr.Addr()] = true
		if !c.Twin {
			names[c.Name]++
		}
	}
	for i := range cards {
		if c := &cards[i]; c.Error == "" && names[c.Name] > 1 {
			c.Name += " (" + c.Addr.Addr().String() + ")"
		}
	}
}

// igmpVersion reads the version that the kernel uses on an interface, which follows the querier's.
func igmpVersion(iface string) string {
	text, err := os.ReadFile("/proc/net/igmp")
	if err != nil {
		return ""
	}
	return parseIGMP(string(text), iface)
}

func parseIGMP(text, iface string) string {
	for line := range strings.Lines(text) {
		// 2	eth0      :     3      V3
		if f := strings.Fields(strings.ReplaceAll(line, ":", " ")); len(f) == 4 && f[1] == iface {
			if _, err := strconv.Atoi(f[0]); err == nil {
				return f[3]
			}
		}
	}
	return ""
}

// swap gives every rank the values of all ranks.
func swap[T any](ctx context.Context, s *rendezvous.Session, mine T) ([]T, error) {
	blob, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	blobs, err := s.Exchange(ctx, blob)
	if err != nil {
		return nil, err
	}
	all := make([]T, len(blobs))
	for i, b := range blobs {
		if err := json.Unmarshal(b, &all[i]); err != nil {
			return nil, fmt.Errorf("rank %d: %w", i, err)
		}
	}
	return all, nil
}
