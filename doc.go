// Package allcast provides collective communication over network multicast. In Broadcast and Allgather
// every byte crosses every network link once. Aggregators next to the switches can make the sums of Reduce-Scatter
// and Allreduce ([Options.Aggregators]). Other collectives use point-to-point messages. [Comm.Send] and [Comm.Recv]
// exchange messages between two ranks.
//
// torchrun, mpirun, srun or "allcast run" starts one process per rank. Each process joins the job and
// calls the same collectives in the same order:
//
//	comm, err := allcast.Join(ctx, allcast.Options{})
//	if err != nil { ... }
//	defer comm.Close()
//	err = comm.Allgather(ctx, mine, all)
//
// [Comm.Split] makes communicators of some of the ranks; all ranks call it. [Comm.Subset] makes one of some
// ranks, and only these call it. Package allcasttest runs ranks inside one process, for tests.
//
// # Buffers
//
// The methods of [Comm] take bytes, and reductions the type of the elements. Functions such as
// [AllreduceSlice] take slices of Go types instead; [BF16] and [F16] are half-precision floats.
//
// Allcast owns the buffers of a call until the call returns or [Request.Done] is closed. Afterwards nothing
// touches them, whether the operation has completed or failed.
//
// # Overlap
//
// Every operation also has a method that starts it and returns a [Request]. The program can compute, and
// start more operations, until it waits for the result. [Group], [WaitAll] and [WaitAny] wait for several:
//
//	r, err := comm.StartAllgather(mine, all)
//	if err != nil { ... }
//	compute()
//	err = r.Wait(ctx)
//
// # Contexts
//
// If the context of a blocking call ends before the operation completes, the call aborts its communicator.
// All unfinished operations on it then fail on all ranks, and only [Comm.Shrink] and [Comm.Close] remain
// useful. The call returns once nothing can touch its buffers. Its error matches [ErrAborted] and the
// error of the context. Later calls on this rank return the same error. The errors on other ranks name a
// rank that gave up.
//
// If the operation completes first, the call returns nil and aborts nothing. If the context has ended
// before the call, the call starts nothing and takes no place in the order of calls.
//
// The context of [Request.Wait] ends only the waiting; the operation continues. [Request.Cancel] gives it up.
// [Comm.Send] and [Comm.Recv] abort nothing while their message has no match. [Comm.Split], [Comm.Dup],
// [Comm.Subset] and [Comm.Shrink] document their own rules.
//
// # Failure
//
// Every call ends, except a Recv of a message that no rank sends, and a Send of one that no rank receives. A
// call fails if a rank dies, is silent for longer than Options.Timeout, or makes a different call. A call with a
// deadline (Options.Deadline, [WithTimeout]) also fails if a rank does not make it in time. Each rank that has not
// completed then gets a [*RankError] that names the failed rank.
//
// Afterwards the communicator is broken. All surviving ranks call [Comm.Shrink], which makes a new
// communicator of them:
//
//	var failed *allcast.RankError
//	if err := comm.Allreduce(ctx, grads, sum, allcast.Float32, allcast.Sum); errors.As(err, &failed) {
//		comm, err = comm.Shrink(ctx)
//		...
//	}
//
// A rank whose call has completed learns of the failure in a later call. The survivors may therefore have
// completed different numbers of calls, and have to agree on where to continue.
//
// # Algorithms
//
// Allcast chooses an algorithm by operation, size and number of ranks. [WithAlgorithm], Options.Tuning and
// ALLCAST_TUNING override the choice. If multicast does not work, Allcast logs a warning and uses
// point-to-point algorithms.
package allcast
