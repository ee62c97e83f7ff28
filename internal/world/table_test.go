package world

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"testing"
)

// The table of ranks has each host once, and few bytes per rank.
func TestTable(t *testing.T) {
	var addrs, racks []string
	for r := range 1000 {
		host := fmt.Sprintf("10.0.%d.%d", r/8/250, r/8%250)
		if r%3 == 0 {
			host = "fe80::1%eth0"
		}
		addrs = append(addrs, net.JoinHostPort(host, strconv.Itoa(1+r*65)))
		racks = append(racks, fmt.Sprint("rack ", r/100))
	}
	addrs[7] = ""
	packed, err := packAddresses(addrs)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(terms{Addrs: packed, Racks: packWords(racks)})
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > 10*len(addrs) {
		t.Errorf("%d ranks on %d hosts take %d bytes", len(addrs), len(packed.Hosts.Texts), len(text))
	}
	var got terms
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	gotAddrs, err := got.Addrs.unpack(len(addrs))
	if err != nil || !slices.Equal(gotAddrs, addrs) {
		t.Errorf("got %v, %v, want %v", gotAddrs, err, addrs)
	}
	gotRacks, err := got.Racks.unpack(len(racks))
	if err != nil || !slices.Equal(gotRacks, racks) {
		t.Errorf("got %v, %v, want %v", gotRacks, err, racks)
	}
}

func TestTableInvalid(t *testing.T) {
	if _, err := packAddresses([]string{"10.0.0.1:1", "10.0.0.1"}); err == nil {
		t.Error("an address without a port is accepted")
	}
	for _, a := range []addresses{
		{},
		{Hosts: words{[]string{"a"}, []byte{0, 0}}, Ports: []byte{0, 1}},
		{Hosts: words{[]string{"a"}, []byte{0, 1}}, Ports: []byte{0, 1, 0, 1}},
		{Hosts: words{[]string{"a"}, []byte{0, 0, 0}}, Ports: []byte{0, 1, 0, 1}},
		{Hosts: words{[]string{"a"}, []byte{0, 0x80}}, Ports: []byte{0, 1, 0, 1}},
	} {
		if got, err := a.unpack(2); err == nil {
			t.Errorf("%v: got %v", a, got)
		}
	}
}

// FuzzTable gives bytes of rank 0 to the decoder. A table that it accepts survives encoding.
func FuzzTable(f *testing.F) {
	f.Add([]byte(`{"h":{"t":["10.0.0.1"],"r":"AAA="},"p":"AAEAAg=="}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var a addresses
		if json.Unmarshal(b, &a) != nil {
			return
		}
		got, err := a.unpack(2)
		if err != nil {
			return
		}
		again, err := packAddresses(got)
		if err != nil {
			return // a host that is no address
		}
		if twice, err := again.unpack(2); err != nil || !slices.Equal(twice, got) {
			t.Errorf("%v becomes %v, %v", got, twice, err)
		}
	})
}
