// Package dpa models the NIC's accelerator of the paper, cycle by cycle: cores whose
// hardware threads share one issue slot, memory accesses during which other threads
// issue, completion queues that are polled, doorbells, and the DMA that copies a chunk
// from staging to the user's buffer. It executes the receive kernel as a trace of
// instruction costs against chunks that arrive at link rate.
//
// It is calibrated on Table I alone: everything else that it says is a prediction.
// Nothing in it is random, so the same Config gives the same Result.
package dpa
