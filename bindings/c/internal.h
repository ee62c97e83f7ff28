/* Structs that the C layer and the Go layer share. Programs include allcast.h only. */
#ifndef ALLCAST_INTERNAL_H
#define ALLCAST_INTERNAL_H

#include "include/allcast.h"

#define MAX_PHASE 64
#define MAX_MESSAGE 4096

/* The error of the last call on a thread. The C layer owns it and passes it to each Go function, which fills it in
 * only if the call fails. */
struct failure {
	int32_t code;
	int32_t rank;
	int32_t world_rank;
	char phase[MAX_PHASE];
	char message[MAX_MESSAGE];
};

enum kind {
	kind_broadcast,
	kind_allgather,
	kind_allgatherv,
	kind_gather,
	kind_gatherv,
	kind_scatter,
	kind_scatterv,
	kind_alltoall,
	kind_alltoallv,
	kind_reduce,
	kind_reduce_scatter,
	kind_reduce_scatterv,
	kind_allreduce,
	kind_barrier,
	kind_broadcast_coalesced,
	kind_allgather_coalesced,
	kind_send,
	kind_recv
};

/* The arguments of an operation. Fields that the kind does not have are zero. */
struct operation {
	allcast_comm comm;
	int32_t kind;
	int32_t root; /* send and recv: the other rank */
	int32_t type;
	int32_t op;
	int32_t tag;
	const void *send;
	void *recv; /* broadcast, send and recv: the buffer */
	size_t bytes;
	const size_t *counts;
	const size_t *recv_counts;  /* alltoallv */
	const void *const *sends;   /* coalesced operations */
	void *const *recvs;         /* coalesced operations */
	size_t n;                   /* coalesced operations: number of buffers */
	allcast_call call;          /* complete, even if the program knows fewer fields */
};

/* Callbacks of a store, for Go code, which cannot call function pointers. */
int store_set(const allcast_store *store, const char *key, const void *value, size_t length);
int store_get(const allcast_store *store, const char *key, int64_t wait_ms, void **value, size_t *length);

/* Lets all handlers of signals run on the alternate stack of the thread. */
void use_alternate_stacks(void);

/* Registers the hook that leaves jobs when the process exits. */
void leave_at_exit(void);

/* A socket that a forked child closes, as package inherit of the Go code records it. */
struct socket_entry {
	uint64_t inode; /* 0: free */
	uint64_t device;
	int64_t fd;
};

#define MAX_SOCKETS (1 << 14)

extern struct socket_entry sockets[MAX_SOCKETS];

/* The version that allcast_version returns, also in a forked child. */
extern char library_version[32];

#endif
