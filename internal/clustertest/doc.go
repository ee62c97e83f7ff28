// Package clustertest runs the ranks of a job in memory, one event at a time, for tests of the
// sans-IO packages. Non-test code does not import it.
//
// A [Cluster] has a virtual clock, a seeded random source and queues of pending events. It knows
// nothing about the state machines under test. An adapter in the tests of each package wraps the
// state machine of a rank and its driver as a [Machine], and makes a [Queue] for everything that can
// happen at the rank: messages from a peer, datagrams, completions, calls. The adapter carries out
// the actions of the state machine, and checks them against the contract with the driver.
//
// What happens next is up to the [Order]. How a queue delivers is up to its [Faults] and its Fate:
// in order, reordered, lost, duplicated or kept back. [Cluster.Kill] and Rank.Stopped crash and
// pause a rank. All of it follows from the seed, so the seed replays a failure. A failure report
// holds the seed, the state of all ranks and the last events.
//
// A [Reference] says what buffers hold before and after a collective. [RunScripts] runs text
// transcripts.
package clustertest
