// Package plan tells what a network would gain from multicast: the time of a training step by algorithm, the bytes on
// links, and what switches need for it.
//
// Times come from the simulator, counts from the graph of the network. Large networks and deep models do not fit the
// time that people wait for an answer. For these, the simulator runs a smaller network whose busiest links take as long
// as those of the real one (see similar.go), and fewer layers (see estimate.go). Every number says where it comes from.
package plan
