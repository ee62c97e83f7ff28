package doctor

import (
	"encoding/binary"
	"net"

	"golang.org/x/net/ipv4"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
)

// queryCmd sends an IGMP query on an interface.
type queryCmd struct {
	Interface string `arg:""`
}

func (c *queryCmd) Run(*cli.Env) error {
	ifi, err := net.InterfaceByName(c.Interface)
	if err != nil {
		return err
	}
	conn, err := net.ListenPacket("ip4:igmp", "0.0.0.0")
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	p := ipv4.NewPacketConn(conn)
	if err := p.SetMulticastInterface(ifi); err != nil {
		return err
	}
	if err := p.SetMulticastTTL(1); err != nil {
		return err
	}
	b := make([]byte, 12)
	b[0], b[1] = 0x11, 10 // a query, with one second to answer
	sum := uint32(0)
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	binary.BigEndian.PutUint16(b[2:], ^uint16(sum))
	_, err = p.WriteTo(b, nil, &net.IPAddr{IP: net.IPv4(224, 0, 0, 1)})
	return err
}
