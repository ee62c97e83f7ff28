/*
 * liballcast_mpi_core.so: MPI's profiling interface over Allcast.
 *
 * How ranks decide alike. A call passes through or goes over multicast on all ranks of its communicator, or the
 * program hangs. Decisions therefore use only facts that are equal on all of them:
 *
 *   - settings, which MPI_Init agrees on over MPI_COMM_WORLD (init.c);
 *   - the state of the communicator, which changes only inside its blocking collectives, by agreement (join.c);
 *   - the kind of call and its total bytes, which MPI requires to be equal: type signatures of all ranks match.
 *
 * Count, datatype and displacements of one rank are local. They only decide whether this rank stages its data
 * (data.c).
 *
 * Threads. No thread of the library ever calls MPI: join.c starts one that calls liballcast.so, and the Go runtime has
 * its own. All MPI calls happen on the thread that is inside the MPI call of the program. While it waits for Allcast,
 * it calls progress, because MPI promises that pending messages and one-sided operations advance inside any blocking
 * call.
 */
#ifndef ALLCAST_MPI_CORE_H
#define ALLCAST_MPI_CORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "calls.h"
#include "native.h"

enum kind {
	BCAST,
	ALLGATHER,
	ALLGATHERV,
	BARRIER,
	REDUCE_SCATTER_BLOCK,
	ALLREDUCE,
	IBCAST,
	IALLGATHER,
	IALLGATHERV,
	KINDS
};

/* Why a call passes through. */
enum reason {
	SMALL,        /* below the threshold */
	NOT_JOINED,   /* its communicator has not joined yet */
	ONE_RANK,     /* its communicator has one rank */
	INTER,        /* an inter-communicator */
	BEYOND_WORLD, /* a communicator with processes outside MPI_COMM_WORLD */
	NO_MULTICAST, /* joining failed, or multicast does not work */
	SLOWER,       /* multicast was measured to be slower */
	TOO_MANY,     /* too many jobs */
	UNSUITABLE,   /* no aggregators, or an operator or type that they cannot reduce */
	REASONS
};

/* This process. Written by MPI_Init, and constant until MPI_Finalize. */
struct process {
	atomic_bool active; /* whether any call may be taken over */
	bool stats, eager, aggregators;
	bool measures;     /* whether each communicator measures its thresholds; otherwise threshold counts */
	int64_t threshold; /* least total bytes of a call that may be taken over, or that makes a communicator join */
	int patience;      /* number of such calls after which a communicator joins */
	int rank, size;    /* in MPI_COMM_WORLD */
	MPI_Comm self;     /* a private duplicate of MPI_COMM_SELF */
	MPI_Request never; /* a receive in self that no message ever matches */
	MPI_Group world;
	int keyval; /* of the attribute that holds a struct comm */
	atomic_bool broken; /* an operation has failed */
};

extern struct process process;

/* Times of MPI for one kind of call, by total bytes. */
#define MAX_SAMPLES 6
struct curve {
	int n;
	int64_t bytes[MAX_SAMPLES];
	double seconds[MAX_SAMPLES];
};

enum phase { FRESH, JOINED, PASSING };

/* The state of a communicator, in an attribute of it. */
struct comm {
	atomic_int refs; /* of the attribute and of unfinished requests */
	MPI_Comm mpi;    /* MPI_COMM_NULL after the program has freed it */
	int rank, size;
	int *members; /* ranks in MPI_COMM_WORLD */
	enum phase phase;
	enum reason why;     /* if phase is PASSING */
	int candidates;      /* calls so far that could have been taken over */
	allcast_comm native; /* if phase is JOINED */
	bool owns_job;       /* native is a job of its own, not a subset of the world's */
	bool whole_job;      /* all ranks of the job are members */
	int64_t threshold[KINDS];
	enum reason below[KINDS]; /* why calls below the threshold pass through */
	struct curve mpi_times[KINDS];
};

/* An operation that Allcast runs. */
struct block {
	char *to;
	MPI_Count count;
	size_t bytes;
};

struct transfer {
	struct comm *comm;
	enum kind kind;
	int64_t bytes;
	double begin;
	allcast_request request;
	char *stage;        /* packed data, or NULL */
	MPI_Datatype type;  /* of the blocks; MPI_DATATYPE_NULL: nothing to unpack */
	bool owns_type;     /* type is a duplicate, because the program may free its own before the operation ends */
	int n;              /* blocks to unpack from stage, in this order */
	struct block *blocks, single;
	char failure[256]; /* why it has failed */
};

/* comm.c: states of communicators */
struct comm *comm_of(MPI_Comm comm);
void retain(struct comm *c);
void release(struct comm *c);
int make_keyval(void);
void forget_world(void);

/* join.c */
void join(struct comm *c);
void close_jobs(void);
void count_free_job(void);

/* data.c: datatypes */
struct layout {
	MPI_Datatype type;
	MPI_Count size;
	MPI_Aint lb, extent;
	bool dense; /* elements are contiguous, in the order of the type signature */
};
struct layout layout_of(MPI_Datatype type);
int64_t total_bytes(MPI_Count count, MPI_Datatype type); /* -1 if an argument is invalid */
int pack(const void *from, MPI_Count count, const struct layout *l, char *to);
int unpack(const char *from, void *to, MPI_Count count, const struct layout *l);
bool reduction_of(MPI_Datatype type, MPI_Op op, int *native_type, int *native_op);

/* transfer.c: starting, awaiting and ending operations. They return an MPI error code, and have raised it. */
int start_bcast(struct transfer *t, void *buf, MPI_Count count, MPI_Datatype type, int root);
int start_allgather(struct transfer *t, const void *send, MPI_Count send_count, MPI_Datatype send_type, void *recv,
	MPI_Count recv_count, MPI_Datatype recv_type);
/* Takes over the blocks of t, one per rank, whose bytes are set. */
int start_allgatherv(struct transfer *t, const void *send, MPI_Count send_count, MPI_Datatype send_type,
	MPI_Datatype recv_type);
int start_barrier(struct transfer *t);
int start_reduce_scatter(struct transfer *t, const void *send, void *recv, int64_t bytes, int type, int op);
int start_allreduce(struct transfer *t, const void *send, void *recv, int64_t bytes, int type, int op);
void keep_types(struct transfer *t);
int await(struct transfer *t);
/* If the operation has ended, poll_transfer returns true and an MPI error code. If t->failure is not empty, the caller
 * then calls raise_failure, which returns the code for the program. */
bool poll_transfer(struct transfer *t, int64_t wait_ms, int *code);
void progress(void);
int raise_failure(struct transfer *t);

/* requests.c: non-blocking operations */
int add_request(struct transfer *t, MPI_Request *request);
int core_await_all(int n, const MPI_Request *requests);
int core_test(int n, const MPI_Request *requests);

/* stats.c */
void count_taken(const struct transfer *t, double seconds);
void count_passed(enum kind kind, enum reason why);
void print_stats(void);
double expected(const struct comm *c, enum kind kind, int64_t bytes);

/* init.c */
void warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Definitions of all functions of struct core, in calls.c, requests.c, init.c and fortran.c. */
#define CALL(result, name, parameters, arguments) result core_##name parameters;
CALLS(CALL)
#undef CALL
#define FORTRAN(name, upper, mixed, parameters, arguments) void core_f_##name parameters;
FORTRAN_CALLS(FORTRAN)
#undef FORTRAN

#endif
