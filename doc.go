// Package allcast is collective communication over network multicast: Broadcast
// and Allgather in which every byte crosses every network link once, and the
// point-to-point collectives that go with them.
//
// A program started once a rank, by torchrun, mpirun, srun or "allcast run",
// joins the others and calls collectives, the same ones in the same order on every rank:
//
//	comm, err := allcast.Join(ctx, allcast.Options{})
//	if err != nil { ... }
//	defer comm.Close()
//	err = comm.Allgather(ctx, mine, all)
//
// # Buffers
//
// Buffers belong to Allcast from the call until it returns, or until Request.Done is closed. Then
// nothing can touch them any more, whether the operation has completed or failed. Comm.Free of
// memory that an operation still uses returns ErrInUse.
//
// # Contexts
//
// If the context of a blocking call ends, the call aborts its communicator on all ranks and returns
// once nothing can touch its buffers any more. Its error matches the context's error and ErrAborted;
// the errors on other ranks name a rank that gave up. Afterwards only Comm.Shrink and Comm.Close are
// of use, and later calls on this rank return the same error.
// If the operation completes first, the call returns nil and aborts nothing. If the context has
// ended before the call, the call starts nothing and takes no place in the order of calls.
//
// The context of Request.Wait ends the waiting only: the operation goes on, and its buffers stay
// Allcast's until Request.Done is closed. Comm.Split, Comm.Dup and Comm.Shrink have rules of their
// own.
//
// # Failure
//
// Every call ends. If a rank dies, hangs for longer than Options.Timeout, or is
// called differently from the others, each rank that has not completed gets a
// *RankError that names the rank that failed. The communicator is then of no more
// use, except to Comm.Shrink, which makes a new one of the ranks that live.
//
// # Algorithms
//
// Each call picks its algorithm by operation, size and number of ranks, or takes the
// one that WithAlgorithm, Options.Tuning or ALLCAST_TUNING names. Where the network has no
// working multicast, this is logged, and point-to-point algorithms run instead.
package allcast
