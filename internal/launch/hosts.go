package launch

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/allcast/allcast/internal/settings"
)

// A Host is a machine and the number of ranks that it takes.
type Host struct {
	Name  string // for ssh: a name or an address, perhaps with a user, as in user@host
	Slots int
}

// hostName accepts names, addresses and users. It refuses names that ssh would take for options.
var hostName = regexp.MustCompile(`^([a-zA-Z0-9_][a-zA-Z0-9._-]*@)?[a-zA-Z0-9_:][a-zA-Z0-9._:%-]*$`)

// ParseHosts parses a list such as a:8,b:8. A host without a number takes one rank. An IPv6 address with a number is in
// brackets.
func ParseHosts(list string) (hosts []Host, err error) {
	for item := range strings.SplitSeq(list, ",") {
		h, err := parseHost(strings.TrimSpace(item))
		if err != nil {
			return nil, err
		}
		hosts = append(hosts, h)
	}
	return hosts, checkHosts(hosts)
}

// ReadHosts parses a file with one host per line, as in a:8, or as in Open MPI's "a slots=8". Empty lines and text
// after a # are ignored.
func ReadHosts(r io.Reader) (hosts []Host, err error) {
	text, err := io.ReadAll(io.LimitReader(r, 16<<20)) // the path may lead to a device
	if err != nil {
		return nil, err
	}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		h, err := parseHost(fields[0])
		if err == nil && len(fields) > 1 {
			slots, ok := strings.CutPrefix(fields[1], "slots=")
			if !ok || len(fields) > 2 || strings.Contains(fields[0], ":") && h.Slots > 1 {
				err = fmt.Errorf("%q: want HOST, HOST:RANKS or HOST slots=RANKS", strings.TrimSpace(line))
			} else {
				h.Slots, err = parseSlots(slots)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		hosts = append(hosts, h)
	}
	return hosts, checkHosts(hosts)
}

func parseHost(item string) (Host, error) {
	h := Host{Name: item, Slots: 1}
	var err error
	if user, rest, ok := strings.Cut(item, "["); ok { // an IPv6 address
		addr, slots, closed := strings.Cut(rest, "]")
		if !closed || slots != "" && slots[0] != ':' {
			return h, fmt.Errorf("%q: want [ADDRESS]:RANKS", item)
		}
		h.Name = user + addr
		if slots != "" {
			h.Slots, err = parseSlots(slots[1:])
		}
	} else if strings.Count(item, ":") == 1 {
		name, slots, _ := strings.Cut(item, ":")
		h.Name = name
		h.Slots, err = parseSlots(slots)
	}
	if err != nil {
		return h, fmt.Errorf("%q: %w", item, err)
	}
	if !hostName.MatchString(h.Name) {
		return h, fmt.Errorf("%q is not the name or address of a host: want a list such as a:8,b:8", item)
	}
	return h, nil
}

func parseSlots(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > MaxRanks {
		return 0, fmt.Errorf("%q ranks: want 1 to %d per host", s, MaxRanks)
	}
	return n, nil
}

func checkHosts(hosts []Host) error {
	if len(hosts) == 0 {
		return errors.New("no hosts")
	}
	seen := map[string]bool{}
	for _, h := range hosts {
		if seen[h.address()] {
			return fmt.Errorf("host %s is there twice: want one entry with all its ranks", h.Name)
		}
		seen[h.address()] = true
	}
	if total := Slots(hosts); total > settings.MaxSize {
		return fmt.Errorf("%d ranks: want at most %d", total, settings.MaxSize)
	}
	return nil
}

// Slots is the number of ranks that the hosts take.
func Slots(hosts []Host) (n int) {
	for _, h := range hosts {
		n += h.Slots
	}
	return n
}

// Fill returns the hosts of the first ranks, which fill one host after the other.
func Fill(hosts []Host, ranks int) ([]Host, error) {
	if total := Slots(hosts); ranks < 1 || ranks > total {
		return nil, fmt.Errorf("%d ranks: the hosts take 1 to %d", ranks, total)
	}
	hosts = slices.Clone(hosts)
	for i := range hosts {
		hosts[i].Slots = min(hosts[i].Slots, ranks)
		if ranks -= hosts[i].Slots; ranks == 0 {
			return hosts[:i+1], nil
		}
	}
	return hosts, nil
}

// address is the host without its user.
func (h Host) address() string {
	_, addr, ok := strings.Cut(h.Name, "@")
	if !ok {
		return h.Name
	}
	return addr
}
