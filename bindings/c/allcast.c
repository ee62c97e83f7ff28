/* The public functions. They refuse to work in a forked child, where the Go runtime has lost its threads, and keep
 * the error of the last call per thread. The rest is in Go. */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "_cgo_export.h"
#include "internal.h"
#include "process.h"

#define PUBLIC __attribute__((visibility("default")))

/* The error of the last call on each thread. It is not in thread-local storage of the compiler: that of a library
 * with Go code has to fit the few hundred bytes that the loader keeps for libraries loaded at run time. */
static pthread_key_t failure_key;

__attribute__((constructor)) static void make_key(void) {
	if (pthread_key_create(&failure_key, free) != 0) {
		abort(); /* the program has used up all keys */
	}
}

/* Returns the last error of the calling thread, or NULL before its first call. */
static struct failure *last_failure(void) { return pthread_getspecific(failure_key); }

static const char *const error_names[] = {
	[ALLCAST_OK] = "ok",
	[ALLCAST_ERR_INVALID] = "invalid argument",
	[ALLCAST_ERR_OPTIONS] = "bad options",
	[ALLCAST_ERR_RANK_LOST] = "rank lost",
	[ALLCAST_ERR_ABORTED] = "aborted",
	[ALLCAST_ERR_DEADLINE] = "deadline passed",
	[ALLCAST_ERR_MISMATCH] = "mismatch",
	[ALLCAST_ERR_PROTOCOL] = "protocol violated",
	[ALLCAST_ERR_CORRUPT] = "corrupt data",
	[ALLCAST_ERR_CLOSED] = "closed",
	[ALLCAST_ERR_NO_MULTICAST] = "no multicast",
	[ALLCAST_ERR_IN_USE] = "in use",
	[ALLCAST_ERR_TRUNCATED] = "message truncated",
	[ALLCAST_ERR_MISSING] = "rank missing",
	[ALLCAST_ERR_TIMEOUT] = "timeout",
	[ALLCAST_ERR_WITHDRAWN] = "withdrawn",
	[ALLCAST_ERR_STORE] = "store failed",
	[ALLCAST_ERR_FORKED] = "forked process",
	[ALLCAST_ERR_JOIN] = "join failed",
	[ALLCAST_ERR_OTHER] = "other error",
	[ALLCAST_ERR_NO_AGGREGATION] = "no aggregators",
};

static int fail(struct failure *f, int code, const char *message) {
	strncpy(f->message, message, MAX_MESSAGE - 1);
	f->code = code;
	return code;
}

/* Forgets the last error of the calling thread and returns the place for the next one. Its code is not ALLCAST_OK if
 * no Go function may be called. */
static struct failure *enter(void) {
	struct failure *f = last_failure();
	if (f == NULL) {
		f = calloc(1, sizeof(*f));
		if (f == NULL || pthread_setspecific(failure_key, f) != 0) {
			abort();
		}
	}
	f->code = ALLCAST_OK;
	f->rank = f->world_rank = -1;
	f->phase[0] = f->message[0] = '\0';
	if (is_forked()) {
		fail(f, ALLCAST_ERR_FORKED,
			"allcast: this process was forked after liballcast was loaded: start ranks with exec, or load the "
			"library after fork");
	}
	return f;
}

/* Calls a Go function, unless the process was forked, and returns its code from the function that uses the macro. */
#define CALL(function, ...)                                                                                    \
	do {                                                                                                          \
		struct failure *f = enter();                                                                                 \
		return f->code != ALLCAST_OK ? f->code : function(f, __VA_ARGS__);                                           \
	} while (0)

PUBLIC int allcast_abi(void) { return ALLCAST_ABI; }

PUBLIC const char *allcast_version(void) {
	if (!is_forked()) {
		goAwaitInit();
	}
	return library_version;
}

PUBLIC const char *allcast_error_message(void) {
	struct failure *f = last_failure();
	return f == NULL ? "" : f->message;
}

PUBLIC int allcast_error_code(void) {
	struct failure *f = last_failure();
	return f == NULL ? ALLCAST_OK : f->code;
}

PUBLIC int allcast_error_rank(void) {
	struct failure *f = last_failure();
	return f == NULL ? -1 : f->rank;
}

PUBLIC int allcast_error_world_rank(void) {
	struct failure *f = last_failure();
	return f == NULL ? -1 : f->world_rank;
}

PUBLIC const char *allcast_error_phase(void) {
	struct failure *f = last_failure();
	return f == NULL ? "" : f->phase;
}

PUBLIC const char *allcast_error_name(int code) {
	if (code < 0 || (size_t)code >= sizeof(error_names) / sizeof(error_names[0])) {
		return "unknown error code";
	}
	return error_names[code];
}

PUBLIC int allcast_options_new(allcast_options *options) { CALL(goOptionsNew, options); }

PUBLIC int allcast_options_set(allcast_options options, const char *name, const void *value, size_t length) {
	CALL(goOptionsSet, options, (char *)name, (void *)value, length);
}

PUBLIC int allcast_options_free(allcast_options options) { CALL(goOptionsFree, options); }

int store_set(const allcast_store *store, const char *key, const void *value, size_t length) {
	return store->set(store->user, key, value, length);
}

int store_get(const allcast_store *store, const char *key, int64_t wait_ms, void **value, size_t *length) {
	return store->get(store->user, key, wait_ms, value, length);
}

PUBLIC int allcast_join(allcast_options options, const allcast_store *store, allcast_comm *comm) {
	CALL(goJoin, options, (allcast_store *)store, comm);
}

PUBLIC int allcast_rank(allcast_comm comm, int *rank) { CALL(goRank, comm, rank); }

PUBLIC int allcast_size(allcast_comm comm, int *size) { CALL(goSize, comm, size); }

PUBLIC int allcast_world_rank(allcast_comm comm, int rank, int *world_rank) {
	CALL(goWorldRank, comm, rank, world_rank);
}

PUBLIC int allcast_describe(allcast_comm comm, char **json) { CALL(goDescribe, comm, json); }

PUBLIC int allcast_stats(allcast_comm comm, char **json) { CALL(goStats, comm, json); }

PUBLIC void allcast_text_free(char *text) { free(text); }

PUBLIC int allcast_abort(allcast_comm comm) { CALL(goAbort, comm); }

PUBLIC int allcast_close(allcast_comm comm) { CALL(goClose, comm); }

PUBLIC int allcast_close_within(allcast_comm comm, int64_t timeout_ms) { CALL(goCloseWithin, comm, timeout_ms); }

PUBLIC int allcast_split(allcast_comm comm, int color, int key, int64_t timeout_ms, allcast_comm *sub) {
	CALL(goSplit, comm, color, key, timeout_ms, sub);
}

PUBLIC int allcast_subset(allcast_comm comm, const int *ranks, size_t n, const char *tag, int64_t timeout_ms,
	allcast_comm *sub) {
	CALL(goSubset, comm, (int *)ranks, n, (char *)tag, timeout_ms, sub);
}

PUBLIC int allcast_shrink(allcast_comm comm, int64_t timeout_ms, allcast_comm *sub) {
	CALL(goShrink, comm, timeout_ms, sub);
}

PUBLIC int allcast_alloc(allcast_comm comm, size_t bytes, void **memory) { CALL(goAlloc, comm, bytes, memory); }

PUBLIC int allcast_free(allcast_comm comm, void *memory) { CALL(goFree, comm, memory); }

/* ---- Operations ---- */

/* Size of allcast_call in version 1. Later versions only add fields. */
#define MIN_CALL (offsetof(allcast_call, subgroups) + sizeof(int32_t))

/* Copies the details of a call. A program may be older than the library, so that its struct is shorter, or newer:
 * then the fields that the library does not know must be zero. */
static int copy_call(struct failure *f, allcast_call *to, const allcast_call *from) {
	static const allcast_call defaults = ALLCAST_CALL_INIT;
	*to = defaults;
	if (from == NULL) {
		return ALLCAST_OK;
	}
	if (from->struct_size < MIN_CALL) {
		return fail(f, ALLCAST_ERR_INVALID,
			"allcast: allcast_call.struct_size is too small: initialise the struct with ALLCAST_CALL_INIT");
	}
	for (size_t i = sizeof(*to); i < from->struct_size; i++) {
		if (((const char *)from)[i] != 0) {
			return fail(f, ALLCAST_ERR_INVALID,
				"allcast: allcast_call has fields that this version of the library does not know: update it");
		}
	}
	memcpy(to, from, from->struct_size < sizeof(*to) ? from->struct_size : sizeof(*to));
	return ALLCAST_OK;
}

/* Starts an operation, and also waits for it if waits is set. */
static int run(struct operation *o, const allcast_call *call, bool waits, allcast_request *request,
	allcast_message *message) {
	struct failure *f = enter();
	if (f->code != ALLCAST_OK || copy_call(f, &o->call, call) != ALLCAST_OK) {
		return f->code;
	}
	return waits ? goRun(f, o, message) : goStart(f, o, request);
}

#define PARAMETERS(...) __VA_ARGS__

/* Defines the blocking form of an operation and the form that starts it. The last arguments initialise the fields
 * of struct operation. */
#define OPERATION(name, parameters, ...)                                                                       \
	PUBLIC int allcast_##name(allcast_comm comm, parameters const allcast_call *call) {                           \
		struct operation o = {.comm = comm, .kind = kind_##name, __VA_ARGS__};                                       \
		return run(&o, call, true, NULL, NULL);                                                                      \
	}                                                                                                             \
	START_OPERATION(name, PARAMETERS(parameters), __VA_ARGS__)

#define START_OPERATION(name, parameters, ...)                                                                 \
	PUBLIC int allcast_start_##name(allcast_comm comm, parameters const allcast_call *call,                       \
		allcast_request *request) {                                                                                  \
		struct operation o = {.comm = comm, .kind = kind_##name, __VA_ARGS__};                                       \
		return run(&o, call, false, request, NULL);                                                                  \
	}

OPERATION(broadcast, PARAMETERS(void *buf, size_t bytes, int root, ), .recv = buf, .bytes = bytes, .root = root)

OPERATION(allgather, PARAMETERS(const void *send, void *recv, size_t bytes, ),
	.send = send, .recv = recv, .bytes = bytes)

OPERATION(allgatherv, PARAMETERS(const void *send, void *recv, const size_t *counts, ),
	.send = send, .recv = recv, .counts = counts)

OPERATION(gather, PARAMETERS(const void *send, void *recv, size_t bytes, int root, ),
	.send = send, .recv = recv, .bytes = bytes, .root = root)

OPERATION(gatherv, PARAMETERS(const void *send, size_t send_bytes, void *recv, const size_t *counts, int root, ),
	.send = send, .bytes = send_bytes, .recv = recv, .counts = counts, .root = root)

OPERATION(scatter, PARAMETERS(const void *send, void *recv, size_t bytes, int root, ),
	.send = send, .recv = recv, .bytes = bytes, .root = root)

OPERATION(scatterv, PARAMETERS(const void *send, const size_t *counts, void *recv, size_t recv_bytes, int root, ),
	.send = send, .counts = counts, .recv = recv, .bytes = recv_bytes, .root = root)

OPERATION(alltoall, PARAMETERS(const void *send, void *recv, size_t bytes, ),
	.send = send, .recv = recv, .bytes = bytes)

OPERATION(alltoallv,
	PARAMETERS(const void *send, const size_t *send_counts, void *recv, const size_t *recv_counts, ),
	.send = send, .counts = send_counts, .recv = recv, .recv_counts = recv_counts)

OPERATION(reduce, PARAMETERS(const void *send, void *recv, size_t bytes, int type, int op, int root, ),
	.send = send, .recv = recv, .bytes = bytes, .type = type, .op = op, .root = root)

OPERATION(reduce_scatter, PARAMETERS(const void *send, void *recv, size_t bytes, int type, int op, ),
	.send = send, .recv = recv, .bytes = bytes, .type = type, .op = op)

OPERATION(reduce_scatterv, PARAMETERS(const void *send, void *recv, const size_t *counts, int type, int op, ),
	.send = send, .recv = recv, .counts = counts, .type = type, .op = op)

OPERATION(allreduce, PARAMETERS(const void *send, void *recv, size_t bytes, int type, int op, ),
	.send = send, .recv = recv, .bytes = bytes, .type = type, .op = op)

OPERATION(barrier, PARAMETERS(), .bytes = 0)

OPERATION(broadcast_coalesced, PARAMETERS(void *const *bufs, const size_t *bytes, size_t n, int root, ),
	.recvs = bufs, .counts = bytes, .n = n, .root = root)

OPERATION(allgather_coalesced,
	PARAMETERS(const void *const *sends, void *const *recvs, const size_t *bytes, size_t n, ),
	.sends = sends, .recvs = recvs, .counts = bytes, .n = n)

OPERATION(send, PARAMETERS(const void *buf, size_t bytes, int to, int tag, ),
	.send = buf, .bytes = bytes, .root = to, .tag = tag)

START_OPERATION(recv, PARAMETERS(void *buf, size_t bytes, int from, int tag, ),
	.recv = buf, .bytes = bytes, .root = from, .tag = tag)

PUBLIC int allcast_recv(allcast_comm comm, void *buf, size_t bytes, int from, int tag, const allcast_call *call,
	allcast_message *message) {
	struct operation o = {
		.comm = comm, .kind = kind_recv, .recv = buf, .bytes = bytes, .root = from, .tag = tag};
	return run(&o, call, true, NULL, message);
}

PUBLIC int allcast_wait(allcast_request request, int64_t timeout_ms, allcast_message *message) {
	CALL(goWait, request, timeout_ms, message);
}

PUBLIC int allcast_cancel(allcast_request request) { CALL(goCancel, request); }

PUBLIC int allcast_release(allcast_request request) { CALL(goRelease, request); }

PUBLIC const char *allcast_algorithm(allcast_request request) { return is_forked() ? "" : goAlgorithm(request); }

/* ---- Completion queues ---- */

PUBLIC int allcast_queue_new(allcast_queue *queue) { CALL(goQueueNew, queue); }

PUBLIC int allcast_queue_fd(allcast_queue queue, int *fd) { CALL(goQueueFD, queue, fd); }

PUBLIC int allcast_queue_next(allcast_queue queue, allcast_completion *list, size_t max, int64_t timeout_ms,
	size_t *n) {
	CALL(goQueueNext, queue, list, max, timeout_ms, n);
}

PUBLIC int allcast_queue_free(allcast_queue queue) { CALL(goQueueFree, queue); }

/* ---- Process ---- */

PUBLIC int allcast_set_parallelism(int threads) { CALL(goSetParallelism, threads); }
