package world

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/allcast/allcast/internal/settings"
)

func settingsFor(size, localSize int, ifname string) *settings.Settings {
	return &settings.Settings{
		Job:     settings.Job{Size: size, LocalSize: localSize},
		Network: settings.Network{Interface: ifname},
	}
}

func TestListenAddr(t *testing.T) {
	for _, s := range []*settings.Settings{settingsFor(1, -1, ""), settingsFor(4, 4, "")} {
		if a, err := listenAddr(s); err != nil || a != loopback {
			t.Errorf("%+v: %v, %v", s.Job, a, err)
		}
	}
	if _, err := listenAddr(settingsFor(2, -1, "none0")); err == nil || !strings.Contains(err.Error(), "ALLCAST_IFNAME") {
		t.Error(err)
	}
	// Whatever the machine has, each rank can listen on its address, and the address is of the right interface.
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"", "^none0"}
	for _, ifi := range all {
		addrs, err := ifi.Addrs()
		if err == nil && len(addrs) > 0 && ifi.Flags&net.FlagUp != 0 {
			names = append(names, ifi.Name, "^"+ifi.Name)
		}
	}
	for _, name := range names {
		a, err := listenAddr(settingsFor(2, -1, name))
		if err != nil {
			t.Logf("%q: %v", name, err) // an interface may have link-local addresses only
			continue
		}
		l, err := net.Listen("tcp", netip.AddrPortFrom(a, 0).String())
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		_ = l.Close()
		excluded, exclude := strings.CutPrefix(name, "^")
		for _, ifi := range all {
			_, here := pick(&ifi, a)
			if here && exclude && ifi.Name == excluded && !a.IsLoopback() ||
				!here && !exclude && ifi.Name == name && name != "" {
				t.Errorf("%q: %v is on %s: %v", name, a, ifi.Name, here)
			}
		}
	}
}

func TestHostID(t *testing.T) {
	if a, b := hostID(), hostID(); a != b || len(a) != 16 {
		t.Errorf("%q and %q", a, b)
	}
}
