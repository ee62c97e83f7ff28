/*
 * Allcast: collective communication over network multicast.
 *
 * One process per rank joins a job with allcast_join and calls the same collectives in the same order as the
 * other ranks. Every operation has a blocking form, such as allcast_broadcast, and a form that starts it, such
 * as allcast_start_broadcast.
 *
 * Functions return ALLCAST_OK or an error code. allcast_error_message then describes the error of the last call
 * on the calling thread. All functions may be called from any thread. In a child process that was forked after the
 * library was loaded, every function that returns a code returns ALLCAST_ERR_FORKED: start ranks with exec, or load
 * the library after fork.
 *
 * Allcast owns the buffers of an operation from the call until the operation ends. They may be freed or changed
 * afterwards, whether it has succeeded or failed.
 *
 * Copyright the Allcast authors. SPDX-License-Identifier: Apache-2.0
 */
#ifndef ALLCAST_H
#define ALLCAST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this interface. A library with the same number is compatible with programs compiled earlier: it may
 * have more functions, options and codes, and larger structs, but changes none. */
#define ALLCAST_ABI 1

/* Returns the ALLCAST_ABI of the library that is loaded. */
int allcast_abi(void);

/* Returns the version of the library, such as "1.2.3". Ranks of different versions can join one
 * job if they speak the same protocol, which "allcast version" shows. */
const char *allcast_version(void);

/* ---- Errors ---- */

enum allcast_error {
	ALLCAST_OK = 0,
	ALLCAST_ERR_INVALID = 1,       /* invalid argument or handle; the call has started nothing */
	ALLCAST_ERR_OPTIONS = 2,       /* invalid option or environment variable */
	ALLCAST_ERR_RANK_LOST = 3,     /* a rank died or was silent for longer than the option "timeout" */
	ALLCAST_ERR_ABORTED = 4,       /* a rank called allcast_abort or gave up a blocking call */
	ALLCAST_ERR_DEADLINE = 5,      /* an operation exceeded its deadline */
	ALLCAST_ERR_MISMATCH = 6,      /* ranks made different calls */
	ALLCAST_ERR_PROTOCOL = 7,      /* a rank sent a message that no correct rank sends */
	ALLCAST_ERR_CORRUPT = 8,       /* ranks ended with different bytes (option "integrity") */
	ALLCAST_ERR_CLOSED = 9,        /* the communicator or the job was closed */
	ALLCAST_ERR_NO_MULTICAST = 10, /* the call requires multicast, which does not work */
	ALLCAST_ERR_IN_USE = 11,       /* an unfinished operation uses the memory or the queue */
	ALLCAST_ERR_TRUNCATED = 12,    /* a message was longer than the buffer of its receive */
	ALLCAST_ERR_MISSING = 13,      /* a living rank did not take part in a shrink */
	ALLCAST_ERR_TIMEOUT = 14,      /* the time to wait passed; the operation continues */
	ALLCAST_ERR_WITHDRAWN = 15,    /* a send or receive without a match was withdrawn */
	ALLCAST_ERR_STORE = 16,        /* a callback of the store failed */
	ALLCAST_ERR_FORKED = 17,       /* the process was forked after the library was loaded */
	ALLCAST_ERR_JOIN = 18,         /* joining failed for another reason, such as a missing rank */
	ALLCAST_ERR_OTHER = 19,
	ALLCAST_ERR_NO_AGGREGATION = 20 /* the call requires aggregators, which it cannot use */
};

/* Returns the message of the last error on the calling thread, "" after success. It names the rank and the phase
 * of the operation where they are known. The text is valid until the next call of the library on this thread. */
const char *allcast_error_message(void);

/* Returns the code that the last call on the calling thread returned. The functions named allcast_error do not
 * count. */
int allcast_error_code(void);

/* Returns the rank at fault in the last error on the calling thread, as numbered in the communicator of the call,
 * or -1 if no single rank is at fault. */
int allcast_error_rank(void);

/* Returns the rank of the job's first communicator for allcast_error_rank, or -1. */
int allcast_error_world_rank(void);

/* Returns the phase in which the operation of the last error failed, or "". */
const char *allcast_error_phase(void);

/* Returns the name of an error code, such as "rank lost". */
const char *allcast_error_name(int code);

/* ---- Joining ---- */

/* Handles. 0 is no handle. A handle that was closed or released is never used again: a later call with it returns
 * ALLCAST_ERR_INVALID, or ALLCAST_ERR_CLOSED for a communicator. */
typedef uint64_t allcast_options;
typedef uint64_t allcast_comm;
typedef uint64_t allcast_request;
typedef uint64_t allcast_queue;

/* Makes options that take all settings from the environment, like the launchers torchrun, mpirun and srun set it. */
int allcast_options_new(allcast_options *options);

/* Sets an option, which overrides the environment. All values are text except "key" and "site-key". Options:
 *
 *   rank, size, addr          the job: this rank, number of ranks, host:port of rank 0
 *   attempt                   number of this start of the job, the same on all ranks, for jobs with a store
 *   key                       key of the job, at least 16 bytes, as raw bytes
 *   secure, integrity         on or off
 *   aggregators, site-key     aggregators that reduce data inside the network, and their key, as raw bytes
 *   interface, fabric, device, rack, rate
 *   timeout, join-timeout, deadline      durations, such as 10s or 1500ms
 *   subgroups, groups, comm-groups, chunk, ttl, dscp, receive-buffer, plain-sockets, no-multicast
 *   datapath, hook, receive-cores, pin
 *   tuning                    rules that choose algorithms
 *   calibrate                 on or off
 *   log                       warn, info, debug, trace or off
 *
 * docs/settings.md describes them. An unknown name or an invalid value is ALLCAST_ERR_OPTIONS. */
int allcast_options_set(allcast_options options, const char *name, const void *value, size_t length);

int allcast_options_free(allcast_options options);

/* A store lets ranks find each other without the address of rank 0. Callbacks run on the thread that called
 * allcast_join, one at a time, and only during that call. */
typedef struct allcast_store {
	void *user; /* first argument of the callbacks */
	/* Stores a value. Returns 0 for success. */
	int (*set)(void *user, const char *key, const void *value, size_t length);
	/* Looks a key up, and waits for it for at most wait_ms. Returns 0 and the value, 1 if there is none yet, or
	 * another number if the store failed. *value must come from malloc; the library frees it. */
	int (*get)(void *user, const char *key, int64_t wait_ms, void **value, size_t *length);
} allcast_store;

/* Connects this process to the other ranks of the job. options may be 0 and store may be NULL. All ranks call it.
 * It fails on all ranks if one is missing or has incompatible options.
 *
 * It sets the flag SA_ONSTACK of all signal handlers. A handler that the program installs later must have the flag,
 * because threads that are inside the library have a small stack. */
int allcast_join(allcast_options options, const allcast_store *store, allcast_comm *comm);

/* ---- Communicators ---- */

int allcast_rank(allcast_comm comm, int *rank);
int allcast_size(allcast_comm comm, int *size);

/* Converts a rank of comm to a rank of the communicator that allcast_join returned. */
int allcast_world_rank(allcast_comm comm, int rank, int *world_rank);

/* Describes a communicator as a JSON object: rank, size, fabric, multicast and the reason if it does not work,
 * datapath, hook, secure, integrity. Free the text with allcast_text_free. */
int allcast_describe(allcast_comm comm, char **json);

/* Returns the counters of this process since it joined as a JSON object. Free the text with allcast_text_free. */
int allcast_stats(allcast_comm comm, char **json);

void allcast_text_free(char *text);

/* Ends all operations on the communicator on all its ranks. */
int allcast_abort(allcast_comm comm);

/* Ends the use of a communicator on this rank and invalidates the handle. Closing the communicator of allcast_join
 * leaves the job: it waits for the other ranks, for the option "timeout" at most, and closes all others. */
int allcast_close(allcast_comm comm);

/* Is allcast_close with a limit of its own, in milliseconds. If the limit passes, this rank says goodbye to ranks that
 * have not closed the communicator: their operations that need this rank fail at once, with an error that names it.
 * With 0 it waits for no rank, as a rank does that has failed. On a busy machine, leaving may continue
 * after the call: memory of operations that have not ended may be used until the process exits. */
int allcast_close_within(allcast_comm comm, int64_t timeout_ms);

/* The following functions make a communicator. timeout_ms limits their duration, and a negative one does not. */

/* Makes one communicator per color. All ranks call it. Ranks with color -1 get handle 0. */
int allcast_split(allcast_comm comm, int color, int key, int64_t timeout_ms, allcast_comm *sub);
/* Makes a communicator of the given ranks of comm, in this order. Only these ranks call it, with the same tag. */
int allcast_subset(allcast_comm comm, const int *ranks, size_t n, const char *tag, int64_t timeout_ms,
	allcast_comm *sub);
/* Makes a communicator of the living ranks. All of them call it after a failure. */
int allcast_shrink(allcast_comm comm, int64_t timeout_ms, allcast_comm *sub);

/* Allocates zeroed memory that the network can use without a copy or a registration. It stays valid until
 * allcast_free, even after allcast_close. allcast_free accepts a comm that was closed, and memory that is NULL. */
int allcast_alloc(allcast_comm comm, size_t bytes, void **memory);
int allcast_free(allcast_comm comm, void *memory);

/* ---- Operations ---- */

enum allcast_type {
	ALLCAST_FLOAT32 = 1,
	ALLCAST_FLOAT64,
	ALLCAST_FLOAT16,
	ALLCAST_BFLOAT16,
	ALLCAST_INT8,
	ALLCAST_INT16,
	ALLCAST_INT32,
	ALLCAST_INT64,
	ALLCAST_UINT8,
	ALLCAST_UINT16,
	ALLCAST_UINT32,
	ALLCAST_UINT64,
	ALLCAST_BOOL
};

enum allcast_op {
	ALLCAST_SUM = 1,
	ALLCAST_AVERAGE,
	ALLCAST_MIN,
	ALLCAST_MAX,
	ALLCAST_PRODUCT,
	ALLCAST_AND,
	ALLCAST_OR,
	ALLCAST_XOR,
	ALLCAST_PREMULTIPLIED_SUM /* with allcast_call.factor */
};

#define ALLCAST_ANY_SOURCE (-1)

/* Details of one call. Initialise it with ALLCAST_CALL_INIT. A NULL pointer means the defaults. */
typedef struct allcast_call {
	size_t struct_size;     /* size of this struct in the program */
	const char *algorithm;  /* NULL: chosen by size and number of ranks */
	int64_t timeout_ms;     /* deadline of the operation in milliseconds, 0: none but the option "deadline" */
	double factor;          /* factor of this rank for ALLCAST_PREMULTIPLIED_SUM */
	allcast_queue queue;    /* queue that gets the request when the operation ends, 0: none; not in blocking calls */
	uint64_t user;          /* passed through to allcast_completion.user */
	int32_t chains;         /* number of ranks that multicast at once, 0: default */
	int32_t subgroups;      /* number of multicast groups to spread over, 0: default */
} allcast_call;

#define ALLCAST_CALL_INIT {sizeof(allcast_call), NULL, 0, 1.0, 0, 0, 0, 0}

/* Blocking operations. Sizes are in bytes. Counts are arrays with one number of bytes per rank. allgather, allgatherv,
 * alltoall and allreduce work in place if send is NULL. The documentation of the Go package describes each
 * operation in detail. */
int allcast_broadcast(allcast_comm comm, void *buf, size_t bytes, int root, const allcast_call *call);
int allcast_allgather(allcast_comm comm, const void *send, void *recv, size_t bytes, const allcast_call *call);
int allcast_allgatherv(allcast_comm comm, const void *send, void *recv, const size_t *counts, const allcast_call *call);
int allcast_gather(allcast_comm comm, const void *send, void *recv, size_t bytes, int root, const allcast_call *call);
int allcast_gatherv(allcast_comm comm, const void *send, size_t send_bytes, void *recv, const size_t *counts, int root,
	const allcast_call *call);
int allcast_scatter(allcast_comm comm, const void *send, void *recv, size_t bytes, int root, const allcast_call *call);
int allcast_scatterv(allcast_comm comm, const void *send, const size_t *counts, void *recv, size_t recv_bytes, int root,
	const allcast_call *call);
int allcast_alltoall(allcast_comm comm, const void *send, void *recv, size_t bytes, const allcast_call *call);
int allcast_alltoallv(allcast_comm comm, const void *send, const size_t *send_counts, void *recv,
	const size_t *recv_counts, const allcast_call *call);
int allcast_reduce(allcast_comm comm, const void *send, void *recv, size_t bytes, int type, int op, int root,
	const allcast_call *call);
int allcast_reduce_scatter(allcast_comm comm, const void *send, void *recv, size_t bytes, int type, int op,
	const allcast_call *call);
int allcast_reduce_scatterv(allcast_comm comm, const void *send, void *recv, const size_t *counts, int type, int op,
	const allcast_call *call);
int allcast_allreduce(allcast_comm comm, const void *send, void *recv, size_t bytes, int type, int op,
	const allcast_call *call);
int allcast_barrier(allcast_comm comm, const allcast_call *call);

/* Many small buffers as one operation. */
int allcast_broadcast_coalesced(allcast_comm comm, void *const *bufs, const size_t *bytes, size_t n, int root,
	const allcast_call *call);
int allcast_allgather_coalesced(allcast_comm comm, const void *const *sends, void *const *recvs, const size_t *bytes,
	size_t n, const allcast_call *call);

/* A message that was received. */
typedef struct allcast_message {
	int32_t source;
	int32_t tag;
	uint64_t bytes;
} allcast_message;

/* Messages between two ranks, matched by source and tag, in order. They take no place in the order of collectives.
 * A timeout of the call withdraws a message without a match (ALLCAST_ERR_WITHDRAWN). message may be NULL. */
int allcast_send(allcast_comm comm, const void *buf, size_t bytes, int to, int tag, const allcast_call *call);
int allcast_recv(allcast_comm comm, void *buf, size_t bytes, int from, int tag, const allcast_call *call,
	allcast_message *message);

/* Forms that start an operation and return at once. *request must be released with allcast_wait or
 * allcast_release. */
int allcast_start_broadcast(allcast_comm comm, void *buf, size_t bytes, int root, const allcast_call *call,
	allcast_request *request);
int allcast_start_allgather(allcast_comm comm, const void *send, void *recv, size_t bytes, const allcast_call *call,
	allcast_request *request);
int allcast_start_allgatherv(allcast_comm comm, const void *send, void *recv, const size_t *counts,
	const allcast_call *call, allcast_request *request);
int allcast_start_gather(allcast_comm comm, const void *send, void *recv, size_t bytes, int root,
	const allcast_call *call, allcast_request *request);
int allcast_start_gatherv(allcast_comm comm, const void *send, size_t send_bytes, void *recv, const size_t *counts,
	int root, const allcast_call *call, allcast_request *request);
int allcast_start_scatter(allcast_comm comm, const void *send, void *recv, size_t bytes, int root,
	const allcast_call *call, allcast_request *request);
int allcast_start_scatterv(allcast_comm comm, const void *send, const size_t *counts, void *recv, size_t recv_bytes,
	int root, const allcast_call *call, allcast_request *request);
int allcast_start_alltoall(allcast_comm comm, const void *send, void *recv, size_t bytes, const allcast_call *call,
	allcast_request *request);
int allcast_start_alltoallv(allcast_comm comm, const void *send, const size_t *send_counts, void *recv,
	const size_t *recv_counts, const allcast_call *call, allcast_request *request);
int allcast_start_reduce(allcast_comm comm, const void *send, void *recv, size_t bytes, int type, int op, int root,
	const allcast_call *call, allcast_request *request);
int allcast_start_reduce_scatter(allcast_comm comm, const void *send, void *recv, size_t bytes, int type, int op,
	const allcast_call *call, allcast_request *request);
int allcast_start_reduce_scatterv(allcast_comm comm, const void *send, void *recv, const size_t *counts, int type,
	int op, const allcast_call *call, allcast_request *request);
int allcast_start_allreduce(allcast_comm comm, const void *send, void *recv, size_t bytes, int type, int op,
	const allcast_call *call, allcast_request *request);
int allcast_start_barrier(allcast_comm comm, const allcast_call *call, allcast_request *request);
int allcast_start_broadcast_coalesced(allcast_comm comm, void *const *bufs, const size_t *bytes, size_t n, int root,
	const allcast_call *call, allcast_request *request);
int allcast_start_allgather_coalesced(allcast_comm comm, const void *const *sends, void *const *recvs,
	const size_t *bytes, size_t n, const allcast_call *call, allcast_request *request);
int allcast_start_send(allcast_comm comm, const void *buf, size_t bytes, int to, int tag, const allcast_call *call,
	allcast_request *request);
int allcast_start_recv(allcast_comm comm, void *buf, size_t bytes, int from, int tag, const allcast_call *call,
	allcast_request *request);

/* Waits for an operation, for at most timeout_ms if it is not negative, and returns its error. It releases the
 * request, unless it returns ALLCAST_ERR_TIMEOUT: the operation then continues. A timeout of 0 tests whether the
 * operation has ended. message may be NULL. */
int allcast_wait(allcast_request request, int64_t timeout_ms, allcast_message *message);

/* Gives an operation up. A send or a receive without a match is withdrawn; anything else aborts the communicator.
 * The request has to be waited for nevertheless, and then ends soon. */
int allcast_cancel(allcast_request request);

/* Lets go of a request whose result is not needed. The operation continues. Its buffers stay in use until it ends,
 * so wait for the communicator, for example with allcast_barrier or allcast_close, before freeing them. */
int allcast_release(allcast_request request);

/* Returns the algorithm of an operation, such as "mcast" or "ring". The text lives as long as the library. */
const char *allcast_algorithm(allcast_request request);

/* ---- Completion queues ---- */

/* Makes a queue. An operation whose allcast_call names the queue adds one completion to it when it ends. */
int allcast_queue_new(allcast_queue *queue);

/* Returns a descriptor that is readable while the queue has completions, for poll, epoll or another event loop.
 * Do not read from it and do not close it. */
int allcast_queue_fd(allcast_queue queue, int *fd);

typedef struct allcast_completion {
	allcast_request request; /* to be released by allcast_wait, which returns at once; 0 if it was released before */
	uint64_t user;           /* allcast_call.user */
	int32_t error;           /* error code of the operation */
	int32_t reserved;
} allcast_completion;

/* Takes up to max completions from a queue into list, and stores their number in *n. If there are none, it waits
 * for at most timeout_ms, forever if that is negative; ALLCAST_ERR_TIMEOUT means that none came. */
int allcast_queue_next(allcast_queue queue, allcast_completion *list, size_t max, int64_t timeout_ms, size_t *n);

/* Frees a queue. It fails with ALLCAST_ERR_IN_USE while operations may still add to it: until allcast_wait or
 * allcast_queue_next has returned them, or their job was closed. A thread that waits in allcast_queue_next returns
 * ALLCAST_ERR_CLOSED. */
int allcast_queue_free(allcast_queue queue);

/* ---- Process ---- */

/* Limits the number of threads that run Go code at once; call it before allcast_join. The default is GOMAXPROCS of
 * the environment, or else the number of processors divided by the number of ranks of the host, as the launcher
 * tells it, and at most 4. */
int allcast_set_parallelism(int threads);

#ifdef __cplusplus
}
#endif

#endif
