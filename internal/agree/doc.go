// Package agree lets the survivors of a communicator agree on their membership, without I/O: a driver
// reports events to a [Machine] and sends its messages.
//
// # What it does
//
// The lowest living rank leads. It asks every rank for its state and waits until the user of every
// living rank has called. It proposes the living ranks, waits until all of them have accepted, and
// announces the decision. A rank that learns of the decision forwards it to all other ranks before it
// acts on it. When the leader dies, the next rank leads under a higher ballot. A ballot consists of
// the leader's rank and a counter.
//
// If a living rank does not call, the leader waits for [Config].Patience, or until some rank reports
// that it no longer waits. The leader then proposes failure, and names the ranks that did not call.
// Hence either all ranks succeed with the same membership, or all fail with the same reason. A rank
// does everything except calling without the help of its user.
//
// # What it needs
//
// It needs a failure detector with final verdicts (package node). A rank that one rank declares lost is
// eventually declared lost by all. The others then ignore its messages, and it is notified. Messages
// between ranks that do not consider each other lost arrive, in order.
//
// # Why survivors agree
//
// Assume that no living rank is declared lost. A leader decides a value when all ranks that it does
// not consider lost, and hence all living ranks, have accepted it. Let v be the first decided value,
// with ballot b. Consider the next higher ballot under which a value is proposed.
//
//   - The ballot belongs to the same leader. The leader proposes again only while nothing is decided,
//     and only the leader can decide under its ballots. Hence there is no such ballot after b.
//   - The ballot belongs to a later leader k. Before k proposes, it learns from every living rank
//     which value that rank has accepted. Each rank answers after it has given up all ranks below k,
//     so it accepts nothing from them afterwards. Each rank had accepted v, or v would not be decided.
//     Its answer therefore holds v, or a value with a higher ballot, which by induction is v. The
//     leader proposes the value with the highest ballot, which is v.
//
// Hence only v is ever decided. A leader that learns of no accepted value may propose any value, and a
// different one if a rank dies before the decision. A leader cannot change a value that it took over,
// because some rank may have acted on it. This holds even if a rank of that value has died since. The
// new communicator is then broken from the start on all its ranks, and has to be shrunk again.
//
// # Why it ends
//
// All living ranks answer the current leader. The death of a leader is noticed, and the number of
// leaders is finite. A leader waits for users only for its patience. A rank that has acted on a
// decision has first told all others, so no rank needs it any more. It may forget the agreement or
// close the communicator.
//
// # When a living rank is declared lost
//
// The rank is notified, and its agreement fails. Values without it no longer need its consent. Two
// leaders that consider each other lost may each have followers that consider the other side lost.
// Both sides then succeed: a network split in two has two groups of survivors. Asking for a majority
// is no alternative, because half of the ranks may really have died. The two groups have no rank in
// common, with one exception: a rank may die between two proposals of the same leader. Then the
// communicator of one group contains ranks that all its own members have given up, and is broken from
// the start.
package agree
