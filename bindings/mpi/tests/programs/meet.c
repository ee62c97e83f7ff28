/* The calls of fortran.F90 in C, for jobs with ranks in both languages. */
#include "test.h"

enum { N = 20000 };

static int *every;

static void check_blocks(int offset) {
	for (int i = 0; i < size * N; i++) {
		CHECK(every[i] == i / N + offset);
	}
}

static void set_values(int *values, int value) {
	for (int i = 0; i < N; i++) {
		values[i] = value;
	}
}

int main(int argc, char **argv) {
	start(&argc, &argv, MPI_THREAD_FUNNELED);
	int *values = need(N * sizeof(int)), counts[64], displs[64];
	every = need((size_t)size * N * sizeof(int));
	set_values(values, rank == 0 ? 17 : -1);
	OK(MPI_Bcast(values, N, MPI_INT, 0, MPI_COMM_WORLD));
	CHECK(values[0] == 17 && values[N - 1] == 17);
	set_values(values, rank);
	OK(MPI_Allgather(values, N, MPI_INT, every, N, MPI_INT, MPI_COMM_WORLD));
	check_blocks(0);
	set_values(values, rank + 1);
	OK(MPI_Allgather(values, N, MPI_INT, every, N, MPI_INT, MPI_COMM_WORLD));
	check_blocks(1);
	for (int r = 0; r < size; r++) {
		counts[r] = N;
		displs[r] = r * N;
	}
	set_values(values, rank + 2);
	OK(MPI_Allgatherv(values, N, MPI_INT, every, counts, displs, MPI_INT, MPI_COMM_WORLD));
	check_blocks(2);
	OK(MPI_Barrier(MPI_COMM_WORLD));
	for (int i = 1; i <= 6; i++) {
		MPI_Request requests[2];
		set_values(every + rank * N, rank + i);
		set_values(values, rank == 1 ? i : -1);
		OK(MPI_Ibcast(values, N, MPI_INT, 1, MPI_COMM_WORLD, &requests[0]));
		OK(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_INT, every, counts, displs, MPI_INT, MPI_COMM_WORLD, &requests[1]));
		OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
		CHECK(values[0] == i && values[N - 1] == i);
		check_blocks(i);
	}
	free(values);
	free(every);
	return passed();
}
