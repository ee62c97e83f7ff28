package lab

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// ipPacket prepends an IP header with the router alert option, as hosts send IGMP.
func ipPacket(source string, message ...byte) []byte {
	head := make([]byte, 24)
	head[0], head[9], head[20] = 0x46, protocolIGMP, 0x94
	copy(head[12:], netip.MustParseAddr(source).AsSlice())
	return slices.Concat(head, message)
}

func TestParseReport(t *testing.T) {
	for name, c := range map[string]struct {
		message []byte
		want    []string
	}{
		"v2 join":  {[]byte{igmpReportV2, 0, 0, 0, 239, 1, 2, 3}, []string{"239.1.2.3"}},
		"v2 leave": {[]byte{0x17, 0, 0, 0, 239, 1, 2, 3}, nil},
		"v3 join": {
			[]byte{igmpReportV3, 0, 0, 0, 0, 0, 0, 1, recordToExclude, 0, 0, 0, 239, 1, 2, 3},
			[]string{"239.1.2.3"},
		},
		"v3 leave": {[]byte{igmpReportV3, 0, 0, 0, 0, 0, 0, 1, 3, 0, 0, 0, 239, 1, 2, 3}, nil},
		"v3, one source": {
			[]byte{igmpReportV3, 0, 0, 0, 0, 0, 0, 1, recordAllowNew, 0, 0, 1, 239, 1, 2, 3, 10, 0, 0, 1},
			[]string{"239.1.2.3"},
		},
		"v3, two groups": {
			[]byte{igmpReportV3, 0, 0, 0, 0, 0, 0, 2, recordIsExclude, 0, 0, 0, 239, 1, 2, 3, 4, 0, 0, 0, 239, 1, 2, 4},
			[]string{"239.1.2.3", "239.1.2.4"},
		},
		"v3, truncated records": {
			[]byte{igmpReportV3, 0, 0, 0, 0, 0, 0, 9, recordIsExclude, 0, 0, 0, 239, 1, 2, 3, 4},
			[]string{"239.1.2.3"},
		},
		"v3, truncated sources": {
			[]byte{igmpReportV3, 0, 0, 0, 0, 0, 0, 2, recordAllowNew, 0, 255, 255, 239, 1, 2, 3},
			[]string{"239.1.2.3"},
		},
		"a query":   {[]byte{0x11, 0, 0, 0, 0, 0, 0, 0}, nil},
		"too short": {[]byte{igmpReportV2}, nil},
	} {
		host, got, left := parseReport(ipPacket("10.0.0.3", c.message...))
		var names []string
		for _, a := range got {
			names = append(names, a.String())
		}
		if host.String() != "10.0.0.3" || !slices.Equal(names, c.want) {
			t.Errorf("%s: %v joins %v, want %v", name, host, names, c.want)
		}
		if leaves := strings.HasSuffix(name, "leave"); leaves != (len(left) > 0) ||
			leaves && left[0].String() != "239.1.2.3" {
			t.Errorf("%s: %v leaves %v", name, host, left)
		}
	}
}

func TestParseUpcall(t *testing.T) {
	b := make([]byte, upcallSize)
	b[8] = upcallNoCache
	copy(b[12:], []byte{10, 0, 0, 1, 239, 9, 9, 9})
	if s, g, ok := parseUpcall(b); !ok || s.String() != "10.0.0.1" || g.String() != "239.9.9.9" {
		t.Errorf("source %v, group %v, ok %v", s, g, ok)
	}
	if _, _, ok := parseUpcall(ipPacket("10.0.0.1", make([]byte, 8)...)); ok {
		t.Error("parseUpcall accepts an IGMP packet")
	}
}

func FuzzIGMP(f *testing.F) {
	f.Add(ipPacket("10.0.0.1", igmpReportV3, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0, 239, 1, 2, 3))
	f.Fuzz(func(_ *testing.T, b []byte) {
		parseReport(b)
		parseUpcall(b)
	})
}
