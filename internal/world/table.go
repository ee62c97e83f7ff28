package world

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
)

// words are texts by rank, of which many are alike: each different text once, and for each rank the number of its
// text, in the encoding of binary.AppendUvarint. The table of a large job reaches all ranks, so it is short.
type words struct {
	Texts []string `json:"t,omitempty"`
	Ranks []byte   `json:"r,omitempty"`
}

func packWords(all []string) (w words) {
	known := map[string]uint64{}
	for _, text := range all {
		n, ok := known[text]
		if !ok {
			n = uint64(len(w.Texts))
			known[text] = n
			w.Texts = append(w.Texts, text)
		}
		w.Ranks = binary.AppendUvarint(w.Ranks, n)
	}
	return w
}

var errTable = errors.New("rank 0 sent a table of ranks that does not decode")

// unpack returns the texts of size ranks.
func (w words) unpack(size int) ([]string, error) {
	all := make([]string, 0, size)
	rest := w.Ranks
	for range size {
		n, bytes := binary.Uvarint(rest)
		if bytes <= 0 || n >= uint64(len(w.Texts)) {
			return nil, errTable
		}
		all, rest = append(all, w.Texts[n]), rest[bytes:]
	}
	if len(rest) != 0 {
		return nil, errTable
	}
	return all, nil
}

// addresses are the addresses of listeners by rank: each different host once, and each rank's port. Two bytes of
// Ports are one port, and port 0 is no address.
type addresses struct {
	Hosts words  `json:"h"`
	Ports []byte `json:"p"`
}

func packAddresses(all []string) (a addresses, err error) {
	var hosts []string
	for r, addr := range all {
		var host, text string
		var port uint64
		if addr != "" {
			host, text, err = net.SplitHostPort(addr)
			if err == nil {
				port, err = strconv.ParseUint(text, 10, 16)
			}
			if err != nil {
				return addresses{}, fmt.Errorf("rank %d has an invalid address: %w", r, err)
			}
		}
		hosts = append(hosts, host)
		a.Ports = binary.BigEndian.AppendUint16(a.Ports, uint16(port))
	}
	a.Hosts = packWords(hosts)
	return a, nil
}

// unpack returns the addresses of size ranks; "" for none.
func (a addresses) unpack(size int) ([]string, error) {
	all, err := a.Hosts.unpack(size)
	if err != nil || len(a.Ports) != 2*size {
		return nil, errTable
	}
	for r, host := range all {
		all[r] = ""
		if port := binary.BigEndian.Uint16(a.Ports[2*r:]); port > 0 {
			all[r] = net.JoinHostPort(host, strconv.Itoa(int(port)))
		}
	}
	return all, nil
}
