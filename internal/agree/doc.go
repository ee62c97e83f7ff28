// Package agree lets the survivors of a communicator agree on who they are, sans-IO:
// a driver tells a [Machine] what happened and sends what it says.
//
// # What it does
//
// The lowest rank that lives leads. It asks everybody what they know, waits until
// everybody has come (their user has called), proposes the ranks that live, waits
// until all of them have accepted, and tells them that it is decided. Those who
// hear that pass it on to all others before they act on it. When the leader dies, the
// next rank leads, under a higher ballot: a ballot is the leader's rank, then a
// count.
//
// If somebody lives but does not come, the leader waits for [Config].Patience, or
// until somebody says that it waits no longer; then it proposes that the agreement
// has failed, and because of whom. So all end well, with the same ranks, or all
// badly, with the same reason. A rank takes part in everything but coming without
// its user's help.
//
// # What it needs
//
// A detector whose verdicts are final: a rank that was taken for lost by one is in
// time taken for lost by all, what it says is not listened to any more, and it is told
// (package node). Between ranks that do not take each other for lost, messages
// arrive, in order.
//
// # Why survivors agree
//
// Suppose no rank is taken for lost that lives. A value is decided when a leader has
// had it accepted by all that it does not take for lost, so by all that live. Let v be
// the first value decided, under ballot b, and look at the next higher ballot under
// which something is proposed.
//
//   - It is the same leader's. It proposes again only as long as nothing is decided, and
//     only it can decide under its ballots: there is no such ballot after b.
//   - It is a later leader's, k. Before it proposes, it hears from all that live what they
//     have accepted. Each answered after it had given up all ranks below k, so it has
//     accepted nothing of them afterwards; and each had accepted v, or v would not be
//     decided: the answer says v, or something of a higher ballot, which by induction
//     is v. The leader proposes what has the highest ballot: v.
//
// So nothing but v is ever decided. A leader that heard of no accepted value may propose
// what it likes, and something else again if a rank dies before it is decided. A value
// that was taken over cannot be changed, even if a rank in it has died since: somebody
// may have acted on it. Then the new communicator is broken from the start, on
// all its ranks, and is to be shrunk in turn.
//
// # Why it ends
//
// All that live answer whoever leads; a leader that dies is noticed, and there are only so
// many. A leader waits for users only within its patience. Whoever has acted on a
// decision has told all others first, so nobody needs it any more: it may forget the
// agreement, or close the communicator.
//
// # When a living rank is taken for lost
//
// It is told, and its agreement fails. Values that leave it out need its consent no longer.
// Two leaders that take each other for lost, each followed by ranks that take the
// others for lost, each get their own way: a network that is split in two has two groups of
// survivors, as there is no majority to ask: half of the ranks may really have died.
// The two groups have no rank in common, unless a rank died between two proposals of the
// same leader; then the communicator of one of them contains ranks that all of its own
// members have given up, and is broken from the start.
package agree
