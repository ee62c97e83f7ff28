// Package lab builds a real network on one Linux machine: hosts and switches are
// network namespaces, cables are veth pairs, the kernel routes. Unicast goes over
// all spines by a hash of the flow; multicast follows static (S,G) entries, one tree
// a group, as OpenSM would program them into InfiniBand switches. Every port has
// the kernel's counters.
//
// What a lab consists of is a Plan, a pure function of its Config. Up makes it
// real, and Down takes away whatever there is of it, also after a crash: namespaces
// carry the lab's name, and what runs in them is the lab's.
//
// The kernel drops multicast routes when the socket that made them closes, so a
// process of its own, the holder, keeps these sockets. It also keeps the lock that
// lets only one lab of a name exist.
package lab
