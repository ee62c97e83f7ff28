// Package lab builds a real network on one Linux machine: hosts and switches are
// network namespaces, cables are veth pairs, and the kernel routes. Unicast is spread over
// all spines by a hash of the flow. Multicast follows static (S,G) entries, one tree per
// group, as OpenSM would program them into InfiniBand switches. The groups of communicators have
// trees as well, to the hosts that have joined them by IGMP. Every port has the kernel's counters.
//
// A Plan describes the parts of a lab; it is a pure function of the Config. Up builds the lab.
// Down removes all that exists of it, also after a crash: namespaces carry the lab's name, and
// all processes in them belong to the lab.
//
// The kernel drops multicast routes when the socket that created them closes. A separate
// process, the holder, keeps these sockets open. It also holds the lock that allows only one
// lab per name.
//
// With Config.Inc, the holder also runs an aggregator inside each switch of one tree. The kernel kills them when
// the holder ends. Programs in the lab learn the tree from ALLCAST_AGGREGATORS.
//
// With Config.Background, the holder also sends the traffic of other jobs: datagrams between leaves. It ends with the
// holder.
//
// Cables keep super-packets whole. Rates are tbf with a burst above one super-packet. A small eBPF program
// at the ingress of hosts, and of switches with aggregators, loses and duplicates packets; the port at the
// other end then cuts super-packets up, so that single datagrams are lost. Ranks learn the groups that have
// trees from ALLCAST_GROUPS and ALLCAST_COMM_GROUPS, and joining any other group is an error.
package lab
