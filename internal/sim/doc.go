// Package sim runs many nodes over a simulated network in virtual time.
//
// The nodes are the production protocol code (internal/node, internal/mcast, internal/p2p, internal/inc). So is the
// code that decides where received data goes: hosts drive mcast.Intake, p2p.Inbox and the records of
// chunks as the engine does, in batches, with late reports and with claims before reads. Only the
// network, the clock and the hosts' memory are simulated. A run is single-threaded, and one seed
// determines everything random in it. The same Config therefore gives the same Result, bit for bit,
// except for Result.WallMS.
//
// # The network
//
// There is one event queue, one clock in picoseconds and one seeded generator. A link direction serves
// two traffic classes, control before bulk. A switch holds a packet in the input buffer of its link until
// the last copy has left, and a full buffer stops the link before it. On trees that route up and then
// down this cannot deadlock, with multicast either: a packet at one level waits only for the next level.
// Operations that share a NIC take turns.
//
// # The aggregators
//
// For reductions by aggregators, every switch of one tree has an aggregator, an inc.Session. Contributions and sums are
// unicast datagrams: from a host to its leaf, from switch to switch up the tree, and from the top to the owner by the
// ordinary route. Faults of datagrams strike at every aggregator and at every host. An aggregator takes no time to add.
// It can crash, with or without the ranks' notice, return without its slots, or stop for a while.
//
// # The hosts
//
// A host has a receive queue and a cost per chunk, and can stop or die. Small runs move real payload; in
// large runs each chunk is a unique tag. Every slot of every receive buffer is verified either way, in a
// large multicast whenever a slot is written. The buffer of a rank is laid out as its plan wants it:
// input, output and scratch memory. Pieces that consist of parts travel packed, and the copies of a plan
// take no time.
// Datagrams of one sender may arrive as one super-packet, which the host scatters before it knows whether
// the guess of its worker is right. Reports and claims may take a random time between worker and node.
// A chunk that causes no action may wait in real time, not in virtual time, until something else happens to
// its host.
// Tokens differ from the engine's: those are unique, while the simulator's name a slot, so that runs
// also test the draining of slots.
package sim
