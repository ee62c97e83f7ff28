// Package wire is the vocabulary that ranks share on the network: kinds of calls and messages, ids,
// the 32-bit immediate of a datagram, and their encodings. It holds data and codecs, no behaviour.
//
// A rank trusts no peer. Each decoder checks lengths and limits before it allocates, and reports a
// malformed message with ErrMalformed.
package wire
