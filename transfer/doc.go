// Package transfer sends files to many machines at once, over network multicast where it works. The commands "allcast
// send" and "allcast recv" are thin layers on top of it.
//
//	sum, err := transfer.Send(ctx, transfer.SendOptions{Paths: []string{"checkpoint"}, To: 7, Key: key})
//	res, err := transfer.Receive(ctx, transfer.ReceiveOptions{From: "host0:7800", Dir: "/data", Key: key})
//
// Receivers may come late, die and come back. A receiver that is started again does not receive verified data again.
// Receive writes nothing outside its directory, and no name there ever shows half a file.
//
// # Design
//
// A receiver has one control connection to the sender (auth.go, message.go). It gets a manifest (manifest.go), which
// cuts the data of all files into segments, and claims the segments that it has (resume.go). The sender forms groups
// of receivers that miss the same segments (conduct.go). A group is a communicator that meets over the control
// connections (group.go, member.go), and each segment is one Broadcast on it.
//
// Every broadcast segment ends in one message of each receiver: stored, or missed. A receiver whose connection ends
// is lost, with all that it has not confirmed. The sender's record of what each receiver has is thus always a lower
// bound, and the rule "send what they miss" needs no special cases for failures.
package transfer
