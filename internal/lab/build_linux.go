package lab

import (
	"context"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/allcast/allcast/internal/topology"
)

// builders is the number of threads that set up the network. They mostly wait for the kernel's
// single lock (rtnl), so more than a few gain nothing.
const builders = 4

// builder builds the network of a plan.
type builder struct {
	plan *Plan
	loss lossFilters
	ns   []netns.NsHandle
	nl   []*netlink.Handle
	// Indexes of each node's interfaces, by port.
	index [][]int
}

func newBuilder(p *Plan) *builder {
	nodes := len(p.Nodes)
	b := &builder{plan: p, ns: make([]netns.NsHandle, nodes), nl: make([]*netlink.Handle, nodes)}
	b.index = make([][]int, nodes)
	for n := range b.ns {
		b.ns[n] = netns.None()
	}
	return b
}

func build(ctx context.Context, p *Plan, progress func(share float64)) error {
	b := newBuilder(p)
	defer b.close()
	var err error
	if b.loss, err = newLossFilters(p.Config); err != nil {
		return err
	}
	// Each step needs the previous one on both ends of a cable.
	steps := []func(*Node) error{b.namespace, b.cables, b.ports, b.routes}
	var mu sync.Mutex
	done, all := 0, len(steps)*len(p.Nodes)
	for _, step := range steps {
		err := each(ctx, p.Nodes, func(n *Node) error {
			if err := step(n); err != nil || progress == nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			done++
			progress(float64(done) / float64(all))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) close() {
	b.loss.close()
	for n := range b.ns {
		if b.nl[n] != nil {
			b.nl[n].Close()
		}
		if b.ns[n].IsOpen() {
			_ = b.ns[n].Close() // nothing was written
		}
	}
}

// each calls f for all nodes, several at a time, until one fails or ctx ends.
func each(ctx context.Context, nodes []*Node, f func(*Node) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	next := make(chan *Node)
	var wg sync.WaitGroup
	for range builders {
		wg.Go(func() {
			for n := range next {
				if ctx.Err() != nil {
					continue
				}
				if err := f(n); err != nil {
					stop(fmt.Errorf("%s: %w", n.Name, err))
				}
			}
		})
	}
	for _, n := range nodes {
		next <- n
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}

func (b *builder) namespace(n *Node) error {
	err := newNamespace(b.plan.Namespace(n), func() error {
		if err := setSysctls(nodeSysctls); err != nil || n.Host {
			return err
		}
		return setSysctls(switchSysctls)
	})
	if err != nil {
		return err
	}
	return b.open(n)
}

// open opens an existing namespace.
func (b *builder) open(n *Node) (err error) {
	name := b.plan.Namespace(n)
	if b.ns[n.ID], err = netns.GetFromPath(namespacePath(name)); err != nil {
		return fmt.Errorf("namespace %s: %w", name, err)
	}
	b.nl[n.ID], err = netlink.NewHandleAt(b.ns[n.ID], unix.NETLINK_ROUTE)
	return annotate(err, "netlink")
}

// cables lays the cables that lead up from a node.
func (b *builder) cables(n *Node) error {
	for _, port := range n.Ports {
		if !port.Up {
			continue
		}
		peer := b.plan.Nodes[port.Peer].Ports[port.PeerPort]
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU, attrs.HardwareAddr = port.Name, b.plan.Config.MTU, port.MAC
		attrs.NumTxQueues, attrs.NumRxQueues = 1, 1 // one queue each keeps a flow in order
		veth := netlink.NewVeth(attrs)
		veth.PeerName, veth.PeerHardwareAddr = peer.Name, port.PeerMAC
		veth.PeerNamespace = netlink.NsFd(b.ns[port.Peer])
		if err := b.nl[n.ID].LinkAdd(veth); err != nil {
			return fmt.Errorf("cable from %s to %s: %w", n.Name, b.plan.Nodes[port.Peer].Name, err)
		}
	}
	return nil
}

// indexes finds the indexes of a node's interfaces.
func (b *builder) indexes(n *Node) error {
	links, err := b.nl[n.ID].LinkList()
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	byName := make(map[string]int, len(links))
	for _, l := range links {
		byName[l.Attrs().Name] = l.Attrs().Index
	}
	b.index[n.ID] = make([]int, len(n.Ports))
	for i, port := range n.Ports {
		if b.index[n.ID][i] = byName[port.Name]; b.index[n.ID][i] == 0 {
			return fmt.Errorf("interface %s is not there", port.Name)
		}
	}
	return nil
}

// link returns a port's interface for netlink.
func (b *builder) link(n topology.NodeID, port int) netlink.Link {
	return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: b.index[n][port]}}
}
