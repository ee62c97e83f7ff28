// Package dpa models the paper's NIC accelerator cycle by cycle. Hardware threads share the
// issue slot of their core, and others issue while a thread waits for memory. Threads poll
// completion queues, ring doorbells, and wait for the DMA that copies a chunk from staging to
// the user's buffer. The model executes the receive kernel as a trace of instruction costs
// against chunks that arrive at link rate.
//
// It is calibrated on Table I alone; all its other results are predictions. Nothing in it is
// random, so the same Config gives the same Result.
package dpa
