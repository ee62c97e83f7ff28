/* Cases that the random program does not make: MPI_BOTTOM, other communicators, attributes, error handlers, large
 * counts, statuses of requests, and threads. */
#include <pthread.h>

#include "test.h"

enum { N = 30000 };

static void bottom(void) {
	char *buf = need(N);
	MPI_Aint at;
	MPI_Datatype type;
	OK(MPI_Get_address(buf, &at));
	OK(MPI_Type_create_hindexed(1, (int[]){N}, &at, MPI_BYTE, &type));
	OK(MPI_Type_commit(&type));
	if (rank == 0) {
		fill(buf, 1, 0, N);
	}
	OK(MPI_Bcast(MPI_BOTTOM, 1, type, 0, MPI_COMM_WORLD));
	CHECK(holds(buf, 1, 0, N));
	OK(MPI_Type_free(&type));
	free(buf);
}

/* A pair has a gap, which must stay as it is. */
static void pairs(void) {
	struct {
		double value;
		int index;
		int gap;
	} p[100];
	for (int i = 0; i < 100; i++) {
		p[i].value = rank == 1 ? i * 0.5 : -1;
		p[i].index = rank == 1 ? i : -1;
		p[i].gap = rank;
	}
	OK(MPI_Bcast(p, 100, MPI_DOUBLE_INT, 1, MPI_COMM_WORLD));
	for (int i = 0; i < 100; i++) {
		CHECK(p[i].value == i * 0.5 && p[i].index == i && p[i].gap == rank);
	}
}

/* Inter-communicators and MPI_COMM_SELF pass through. */
static void other_communicators(void) {
	MPI_Comm half, inter, merged;
	int low = rank % 2 == 0, value = rank;
	OK(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half));
	OK(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank % 2 == 0 ? 1 : 0, 3, &inter));
	int all[64];
	OK(MPI_Allgather(&value, 1, MPI_INT, all, 1, MPI_INT, inter));
	CHECK(all[0] == (low ? 1 : 0));
	OK(MPI_Bcast(&value, 1, MPI_INT, low ? (rank == 0 ? MPI_ROOT : MPI_PROC_NULL) : 0, inter));
	CHECK(low || value == 0);
	OK(MPI_Barrier(inter));
	OK(MPI_Intercomm_merge(inter, low, &merged));
	char *buf = need(N);
	if (rank == 0) {
		fill(buf, 2, 0, N);
	}
	int root, zero = 0;
	MPI_Group world_group, merged_group;
	OK(MPI_Comm_group(MPI_COMM_WORLD, &world_group));
	OK(MPI_Comm_group(merged, &merged_group));
	OK(MPI_Group_translate_ranks(world_group, 1, &zero, merged_group, &root));
	OK(MPI_Bcast(buf, N, MPI_BYTE, root, merged));
	CHECK(holds(buf, 2, 0, N));
	OK(MPI_Bcast(buf, N, MPI_BYTE, 0, MPI_COMM_SELF));
	free(buf);
	OK(MPI_Group_free(&world_group));
	OK(MPI_Group_free(&merged_group));
	OK(MPI_Comm_free(&merged));
	OK(MPI_Comm_free(&inter));
	OK(MPI_Comm_free(&half));
}

/* A communicator may be freed before its requests have ended. */
static void freed_communicator(void) {
	MPI_Comm dup;
	MPI_Request request;
	MPI_Datatype pieces;
	MPI_Status status;
	char *buf = need(4 * N);
	OK(MPI_Comm_dup(MPI_COMM_WORLD, &dup));
	OK(MPI_Barrier(dup));
	OK(MPI_Type_vector(N, 2, 4, MPI_BYTE, &pieces));
	OK(MPI_Type_commit(&pieces));
	fill(buf, rank == 0 ? 3 : 4, 0, 4 * N);
	OK(MPI_Ibcast(buf, 1, pieces, 0, dup, &request));
	OK(MPI_Type_free(&pieces));
	OK(MPI_Comm_free(&dup));
	OK(MPI_Wait(&request, &status));
	CHECK(request == MPI_REQUEST_NULL);
	for (size_t i = 0; i < 4 * N - 2; i++) {
		CHECK(buf[i] == (char)pattern(rank == 0 || i % 4 < 2 ? 3 : 4, 0, i));
	}
	free(buf);
}

static int copies, deletions;

static int copy(MPI_Comm comm, int keyval, void *extra, void *value, void *to, int *flag) {
	(void)comm, (void)keyval, (void)extra;
	copies++;
	*(void **)to = value;
	*flag = 1;
	return MPI_SUCCESS;
}

static int delete(MPI_Comm comm, int keyval, void *value, void *extra) {
	(void)comm, (void)keyval, (void)value, (void)extra;
	deletions++;
	return MPI_SUCCESS;
}

static int handled;

static void handler(MPI_Comm *comm, int *code, ...) {
	(void)comm, (void)code;
	handled++;
}

static void attributes_and_handlers(void) {
	int keyval, found, value = 5, byte = 0, *seen;
	MPI_Comm dup;
	MPI_Errhandler errhandler;
	OK(MPI_Comm_create_keyval(copy, delete, &keyval, NULL));
	OK(MPI_Comm_set_attr(MPI_COMM_WORLD, keyval, &value));
	OK(MPI_Comm_dup(MPI_COMM_WORLD, &dup));
	OK(MPI_Barrier(dup));
	OK(MPI_Comm_get_attr(dup, keyval, &seen, &found));
	CHECK(found && *seen == 5 && copies == 1);
	OK(MPI_Comm_create_errhandler(handler, &errhandler));
	OK(MPI_Comm_set_errhandler(dup, errhandler));
	CHECK(MPI_Bcast(&byte, 1, MPI_BYTE, size + 7, dup) != MPI_SUCCESS);
	CHECK(MPI_Bcast(&byte, -1, MPI_BYTE, 0, dup) != MPI_SUCCESS);
	CHECK(handled == 2);
	OK(MPI_Errhandler_free(&errhandler));
	OK(MPI_Comm_free(&dup));
	CHECK(deletions == 1);
	OK(MPI_Comm_delete_attr(MPI_COMM_WORLD, keyval));
	OK(MPI_Comm_free_keyval(&keyval));
}

static void large_counts(void) {
#if MPI_VERSION >= 4
	MPI_Count counts[64];
	MPI_Aint displs[64];
	char *all = need((size_t)size * N);
	MPI_Request request;
	fill(all + rank * N, 5, rank, N);
	OK(MPI_Allgather_c(MPI_IN_PLACE, 0, MPI_BYTE, all, N, MPI_BYTE, MPI_COMM_WORLD));
	for (int r = 0; r < size; r++) {
		CHECK(holds(all + r * N, 5, r, N));
		counts[r] = N;
		displs[r] = (MPI_Aint)(size - 1 - r) * N;
	}
	fill(all + displs[rank], 6, rank, N);
	OK(MPI_Iallgatherv_c(MPI_IN_PLACE, 0, MPI_BYTE, all, counts, displs, MPI_BYTE, MPI_COMM_WORLD, &request));
	OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
	for (int r = 0; r < size; r++) {
		CHECK(holds(all + displs[r], 6, r, N));
	}
	OK(MPI_Bcast_c(all, (MPI_Count)size * N, MPI_BYTE, 1, MPI_COMM_WORLD));
	CHECK(holds(all + displs[0], 6, 0, N));
	free(all);
#endif
}

/* Two threads make collectives on communicators of their own, in any order. */
static void *in_thread(void *comm) {
	char *buf = need(N);
	for (int i = 0; i < 20; i++) {
		int root = i % size;
		fill(buf, rank == root ? i : 99, root, N);
		OK(MPI_Bcast(buf, N, MPI_BYTE, root, *(MPI_Comm *)comm));
		CHECK(holds(buf, i, root, N));
		MPI_Request request;
		fill(buf, rank == root ? i + 50 : 98, root, N);
		OK(MPI_Ibcast(buf, N, MPI_BYTE, root, *(MPI_Comm *)comm, &request));
		OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
		CHECK(holds(buf, i + 50, root, N));
	}
	free(buf);
	return NULL;
}

static void threads(void) {
	MPI_Comm comms[2];
	pthread_t thread;
	OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[0]));
	OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]));
	CHECK(pthread_create(&thread, NULL, in_thread, &comms[0]) == 0);
	in_thread(&comms[1]);
	pthread_join(thread, NULL);
	OK(MPI_Comm_free(&comms[0]));
	OK(MPI_Comm_free(&comms[1]));
}

/* Communicators that join before MPI_COMM_WORLD has. */
static void early_communicator(void) {
	MPI_Comm half;
	char *buf = need(N);
	OK(MPI_Comm_split(MPI_COMM_WORLD, rank < size / 2, -rank, &half));
	int root = 0, own, members;
	OK(MPI_Comm_rank(half, &own));
	OK(MPI_Comm_size(half, &members));
	fill(buf, own == root ? 8 : 9, root, N);
	OK(MPI_Bcast(buf, N, MPI_BYTE, root, half));
	CHECK(holds(buf, 8, root, N));
	OK(MPI_Comm_free(&half));
	free(buf);
}

int main(int argc, char **argv) {
	int level;
	start(&argc, &argv, MPI_THREAD_MULTIPLE);
	early_communicator();
	bottom();
	pairs();
	other_communicators();
	freed_communicator();
	attributes_and_handlers();
	large_counts();
	OK(MPI_Query_thread(&level));
	if (level == MPI_THREAD_MULTIPLE) {
		threads();
	}
	return passed();
}
