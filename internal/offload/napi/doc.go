// Package napi makes processors the receive cores of a network interface. Linux takes packets
// from an interface on the interrupted processor, or for a veth on the sender's. A threaded
// interface has kernel threads for that. Bound to processors, they are the counterpart of the
// paper's accelerator cores.
//
// The settings belong to the interface, not to a process, so all processes that use an interface
// share them. The first process saves the original values in a file under /run/allcast. Every
// process holds a shared lock on that file. The last process to leave restores the values and
// removes the file. The kernel drops the locks of a process that dies. If the last process was
// killed, the file remains, and the next process takes the original values from there.
//
//   - A process joins and leaves under an exclusive lock on the directory. No process can join
//     while the last one restores.
//   - A file appears by rename, complete and locked, before the first setting changes. It disappears
//     after the last setting is restored. A process can be killed at any point in between.
//   - A file is named after the inode of the network namespace and the index of the interface. The
//     kernel uses both again, so the file also identifies boot, namespace and device. A process that
//     finds the file of another boot, namespace or device replaces it.
package napi
