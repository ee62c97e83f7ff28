/* The collectives. Each computes the total bytes of the call, which is the same on all ranks, and decides. */
#include <stdlib.h>

#include "core.h"

static struct comm *pass(enum kind kind, enum reason why) {
	count_passed(kind, why);
	return NULL;
}

/* Returns the state of a communicator if Allcast carries this call on it, or NULL if the call passes through. A
 * communicator may join inside a blocking collective only, where all its members are. */
static struct comm *take(enum kind kind, MPI_Comm comm, int64_t bytes, bool blocking) {
	if (!atomic_load_explicit(&process.active, memory_order_relaxed) || comm == MPI_COMM_NULL) {
		return NULL;
	}
	if (bytes < process.threshold && !(kind == BARRIER && process.measures)) {
		return pass(kind, SMALL);
	}
	struct comm *c = comm_of(comm);
	if (c == NULL) {
		return NULL;
	}
	if (c->phase == FRESH) {
		if (!blocking || bytes < process.threshold || ++c->candidates < process.patience) {
			return pass(kind, NOT_JOINED);
		}
		join(c);
	}
	switch (c->phase) {
	case FRESH:
		return pass(kind, NOT_JOINED);
	case PASSING:
		return pass(kind, c->why);
	default:
		return bytes < c->threshold[kind] ? pass(kind, c->below[kind]) : c;
	}
}

/* The total bytes of an Allgather, or -1. */
static int64_t gathered_bytes(MPI_Count count, MPI_Datatype type, MPI_Comm comm) {
	int64_t each = total_bytes(count, type);
	int size;
	if (each <= 0 || comm == MPI_COMM_NULL || PMPI_Comm_size(comm, &size) != MPI_SUCCESS) {
		return -1;
	}
	return each * size;
}

#define TAKES(t, k, mpi_comm, total, blocking)                                                         \
	((t).bytes = (total), (t).kind = (k), (t).type = MPI_DATATYPE_NULL,                                   \
		(t).bytes > 0 && ((t).comm = take(k, mpi_comm, (t).bytes, blocking)) != NULL)

/* Whether calls need a look at all. */
static inline bool active(void) { return atomic_load_explicit(&process.active, memory_order_relaxed); }

static int wait_for(struct transfer *t, int code) { return code == MPI_SUCCESS ? await(t) : code; }

static int as_request(struct transfer *t, int code, MPI_Request *request) {
	return code == MPI_SUCCESS ? add_request(t, request) : code;
}

static bool valid_root(const struct comm *c, int root) { return root >= 0 && root < c->size; }

/* ---- Broadcast ---- */

static bool takes_bcast(struct transfer *t, enum kind kind, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm) {
	return active() && TAKES(*t, kind, comm, total_bytes(count, type), kind == BCAST) && valid_root(t->comm, root);
}

#define BCAST_CALL(name, count_type)                                                                            \
	int core_##name(void *buf, count_type count, MPI_Datatype type, int root, MPI_Comm comm) {                     \
		struct transfer t = {0};                                                                                      \
		if (!takes_bcast(&t, BCAST, count, type, root, comm)) {                                                       \
			return P##name(buf, count, type, root, comm);                                                                \
		}                                                                                                             \
		return wait_for(&t, start_bcast(&t, buf, count, type, root));                                                 \
	}

#define IBCAST_CALL(name, count_type)                                                                           \
	int core_##name(void *buf, count_type count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request *request) { \
		struct transfer t = {0};                                                                                      \
		if (!takes_bcast(&t, IBCAST, count, type, root, comm)) {                                                      \
			return P##name(buf, count, type, root, comm, request);                                                       \
		}                                                                                                             \
		return as_request(&t, start_bcast(&t, buf, count, type, root), request);                                      \
	}

/* ---- Allgather ---- */

static bool takes_allgather(struct transfer *t, enum kind kind, MPI_Count count, MPI_Datatype type, MPI_Comm comm) {
	return active() && TAKES(*t, kind, comm, gathered_bytes(count, type, comm), kind == ALLGATHER);
}

#define ALLGATHER_CALL(name, count_type)                                                                        \
	int core_##name(const void *send, count_type send_count, MPI_Datatype send_type, void *recv,                   \
		count_type recv_count, MPI_Datatype recv_type, MPI_Comm comm) {                                               \
		struct transfer t = {0};                                                                                      \
		if (!takes_allgather(&t, ALLGATHER, recv_count, recv_type, comm)) {                                           \
			return P##name(send, send_count, send_type, recv, recv_count, recv_type, comm);                              \
		}                                                                                                             \
		return wait_for(&t, start_allgather(&t, send, send_count, send_type, recv, recv_count, recv_type));           \
	}

#define IALLGATHER_CALL(name, count_type)                                                                       \
	int core_##name(const void *send, count_type send_count, MPI_Datatype send_type, void *recv,                   \
		count_type recv_count, MPI_Datatype recv_type, MPI_Comm comm, MPI_Request *request) {                         \
		struct transfer t = {0};                                                                                      \
		if (!takes_allgather(&t, IALLGATHER, recv_count, recv_type, comm)) {                                          \
			return P##name(send, send_count, send_type, recv, recv_count, recv_type, comm, request);                     \
		}                                                                                                             \
		return as_request(&t, start_allgather(&t, send, send_count, send_type, recv, recv_count, recv_type), request); \
	}

/* ---- Allgatherv ---- */

/* Counts and displacements of one rank are int, or MPI_Count and MPI_Aint in the calls for large counts. */
struct vectors {
	const int *counts, *displs;
	const MPI_Count *large_counts;
	const MPI_Aint *large_displs;
};

static MPI_Count count_at(const struct vectors *v, int i) {
	return v->counts != NULL ? v->counts[i] : v->large_counts[i];
}

static MPI_Aint displ_at(const struct vectors *v, int i) {
	return v->displs != NULL ? v->displs[i] : v->large_displs[i];
}

static bool takes_allgatherv(
	struct transfer *t, enum kind kind, void *recv, struct vectors v, MPI_Datatype type, MPI_Comm comm) {
	int size, inter = 0;
	MPI_Count sum = 0;
	MPI_Aint lb, extent;
	if (!active() || comm == MPI_COMM_NULL || type == MPI_DATATYPE_NULL ||
		(v.counts == NULL && v.large_counts == NULL) || (v.displs == NULL && v.large_displs == NULL) ||
		PMPI_Comm_test_inter(comm, &inter) != MPI_SUCCESS || inter || PMPI_Comm_size(comm, &size) != MPI_SUCCESS) {
		return false;
	}
	for (int i = 0; i < size; i++) {
		MPI_Count n = count_at(&v, i);
		if (n < 0) {
			return false;
		}
		sum += n;
	}
	if (!TAKES(*t, kind, comm, total_bytes(sum, type), kind == ALLGATHERV)) {
		return false;
	}
	t->n = size;
	t->blocks = calloc((size_t)size, sizeof(struct block));
	if (t->blocks == NULL) {
		abort(); /* the other ranks have started */
	}
	PMPI_Type_get_extent(type, &lb, &extent);
	for (int i = 0; i < size; i++) {
		MPI_Count n = count_at(&v, i);
		t->blocks[i] = (struct block){
			(char *)((uintptr_t)recv + (uintptr_t)(displ_at(&v, i) * extent)), n, (size_t)total_bytes(n, type)};
	}
	return true;
}

#define ALLGATHERV_CALL(name, count_type, displ_type, ...)                                                      \
	int core_##name(const void *send, count_type send_count, MPI_Datatype send_type, void *recv,                   \
		const count_type *counts, const displ_type *displs, MPI_Datatype recv_type, MPI_Comm comm) {                  \
		struct transfer t = {0};                                                                                      \
		if (!takes_allgatherv(&t, ALLGATHERV, recv, (struct vectors){__VA_ARGS__}, recv_type, comm)) {                \
			return P##name(send, send_count, send_type, recv, counts, displs, recv_type, comm);                          \
		}                                                                                                             \
		return wait_for(&t, start_allgatherv(&t, send, send_count, send_type, recv_type));                            \
	}

#define IALLGATHERV_CALL(name, count_type, displ_type, ...)                                                     \
	int core_##name(const void *send, count_type send_count, MPI_Datatype send_type, void *recv,                   \
		const count_type *counts, const displ_type *displs, MPI_Datatype recv_type, MPI_Comm comm,                    \
		MPI_Request *request) {                                                                                       \
		struct transfer t = {0};                                                                                      \
		if (!takes_allgatherv(&t, IALLGATHERV, recv, (struct vectors){__VA_ARGS__}, recv_type, comm)) {               \
			return P##name(send, send_count, send_type, recv, counts, displs, recv_type, comm, request);                 \
		}                                                                                                             \
		return as_request(&t, start_allgatherv(&t, send, send_count, send_type, recv_type), request);                 \
	}

/* ---- Barrier ---- */

int core_MPI_Barrier(MPI_Comm comm) {
	struct transfer t = {.kind = BARRIER, .type = MPI_DATATYPE_NULL};
	t.comm = active() ? take(BARRIER, comm, 0, true) : NULL;
	if (t.comm == NULL) {
		return PMPI_Barrier(comm);
	}
	return wait_for(&t, start_barrier(&t));
}

/* ---- Reductions ---- */

/* Decides about a reduction with blocks of this many elements. */
static bool takes_reduction(struct transfer *t, enum kind kind, MPI_Count count, MPI_Datatype type, MPI_Op op,
	MPI_Comm comm, int *native_type, int *native_op) {
	if (!active()) {
		return false;
	}
	if (!process.aggregators || !reduction_of(type, op, native_type, native_op)) {
		count_passed(kind, UNSUITABLE);
		return false;
	}
	int64_t bytes = kind == ALLREDUCE ? total_bytes(count, type) : gathered_bytes(count, type, comm);
	if (!TAKES(*t, kind, comm, bytes, true)) {
		return false;
	}
	if (!t->comm->whole_job) {
		count_passed(kind, UNSUITABLE);
		return false;
	}
	return true;
}

#define REDUCTION_CALL(name, kind, start, count_type)                                                           \
	int core_##name(const void *send, void *recv, count_type count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) { \
		struct transfer t = {0};                                                                                      \
		int native_type, native_op;                                                                                   \
		if (!takes_reduction(&t, kind, count, type, op, comm, &native_type, &native_op)) {                            \
			return P##name(send, recv, count, type, op, comm);                                                           \
		}                                                                                                             \
		return wait_for(&t, start(&t, send, recv, total_bytes(count, type), native_type, native_op));                 \
	}

BCAST_CALL(MPI_Bcast, int)
IBCAST_CALL(MPI_Ibcast, int)
ALLGATHER_CALL(MPI_Allgather, int)
IALLGATHER_CALL(MPI_Iallgather, int)
ALLGATHERV_CALL(MPI_Allgatherv, int, int, .counts = counts, .displs = displs)
IALLGATHERV_CALL(MPI_Iallgatherv, int, int, .counts = counts, .displs = displs)
REDUCTION_CALL(MPI_Reduce_scatter_block, REDUCE_SCATTER_BLOCK, start_reduce_scatter, int)
REDUCTION_CALL(MPI_Allreduce, ALLREDUCE, start_allreduce, int)

#if MPI_VERSION >= 4
BCAST_CALL(MPI_Bcast_c, MPI_Count)
IBCAST_CALL(MPI_Ibcast_c, MPI_Count)
ALLGATHER_CALL(MPI_Allgather_c, MPI_Count)
IALLGATHER_CALL(MPI_Iallgather_c, MPI_Count)
ALLGATHERV_CALL(MPI_Allgatherv_c, MPI_Count, MPI_Aint, .large_counts = counts, .large_displs = displs)
IALLGATHERV_CALL(MPI_Iallgatherv_c, MPI_Count, MPI_Aint, .large_counts = counts, .large_displs = displs)
REDUCTION_CALL(MPI_Reduce_scatter_block_c, REDUCE_SCATTER_BLOCK, start_reduce_scatter, MPI_Count)
REDUCTION_CALL(MPI_Allreduce_c, ALLREDUCE, start_allreduce, MPI_Count)
#endif
