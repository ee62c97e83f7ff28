/*
 * MPI promises that pending operations progress while a rank is inside a blocking call. Rank 0 therefore completes its
 * sends and its part of one-sided operations inside a collective of Allcast, which rank 1 enters only afterwards.
 */
#include "test.h"

enum { LARGEST = 8 << 20, DATA = 100000 };

static char *message, *data;

/* Rank 0 sends and enters the Broadcast. Rank 1 receives first. */
static void messages(int bytes, int call) {
	MPI_Request request;
	if (rank == 0) {
		fill(message, call, 0, (size_t)bytes);
		fill(data, call, 7, DATA);
		OK(MPI_Isend(message, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &request));
		OK(MPI_Bcast(data, DATA, MPI_BYTE, 0, MPI_COMM_WORLD));
		OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
		return;
	}
	if (rank == 1) {
		OK(MPI_Recv(message, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
		CHECK(holds(message, call, 0, (size_t)bytes));
	}
	OK(MPI_Bcast(data, DATA, MPI_BYTE, 0, MPI_COMM_WORLD));
	CHECK(holds(data, call, 7, DATA));
}

/* The same with the wait for a non-blocking Allgather as the call in which rank 0 waits. */
static void requests(int bytes, int call) {
	MPI_Request request[2];
	char *all = need((size_t)size * 1000);
	char own[1000];
	fill(own, call, rank, sizeof(own));
	if (rank == 0) {
		fill(message, call, 0, (size_t)bytes);
		OK(MPI_Isend(message, bytes, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &request[0]));
	}
	if (rank == 1) {
		OK(MPI_Recv(message, bytes, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
		CHECK(holds(message, call, 0, (size_t)bytes));
	}
	OK(MPI_Iallgather(own, sizeof(own), MPI_BYTE, all, sizeof(own), MPI_BYTE, MPI_COMM_WORLD, &request[1]));
	OK(MPI_Wait(&request[1], MPI_STATUS_IGNORE));
	for (int r = 0; r < size; r++) {
		CHECK(holds(all + r * 1000, call, r, 1000));
	}
	if (rank == 0) {
		OK(MPI_Wait(&request[0], MPI_STATUS_IGNORE));
	}
	free(all);
}

/* Rank 1 reads and changes memory of rank 0, which is inside the Broadcast or the Barrier. */
static void one_sided(int bytes, int call, bool barrier) {
	char *memory;
	MPI_Win win;
	OK(MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win));
	OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win));
	fill(memory, call, rank, (size_t)bytes);
	OK(MPI_Win_unlock(rank, win));
	OK(PMPI_Barrier(MPI_COMM_WORLD));
	if (rank == 0) {
		fill(data, call, 9, DATA);
	}
	if (rank == 1) {
		OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win));
		OK(MPI_Get(message, bytes, MPI_BYTE, 0, 0, bytes, MPI_BYTE, win));
		OK(MPI_Win_flush(0, win));
		CHECK(holds(message, call, 0, (size_t)bytes));
		OK(MPI_Accumulate(message, bytes, MPI_BYTE, 0, 0, bytes, MPI_BYTE, MPI_BXOR, win));
		OK(MPI_Win_unlock(0, win));
	}
	if (barrier) {
		OK(MPI_Barrier(MPI_COMM_WORLD));
	} else {
		OK(MPI_Bcast(data, DATA, MPI_BYTE, 0, MPI_COMM_WORLD));
		CHECK(holds(data, call, 9, DATA));
	}
	OK(PMPI_Barrier(MPI_COMM_WORLD));
	OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win));
	for (int i = 0; rank == 0 && i < bytes; i++) {
		CHECK(memory[i] == 0);
	}
	OK(MPI_Win_unlock(rank, win));
	OK(MPI_Win_free(&win));
}

int main(int argc, char **argv) {
	static const int sizes[] = {0, 100, 4000, 70000, 1 << 20, LARGEST};
	start(&argc, &argv, MPI_THREAD_SINGLE);
	message = need(LARGEST);
	data = need(DATA);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		messages(sizes[i], (int)i);
		requests(sizes[i], (int)i + 100);
	}
	for (size_t i = 1; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		one_sided(sizes[i], (int)i, i % 2 == 0);
	}
	free(message);
	free(data);
	return passed();
}
