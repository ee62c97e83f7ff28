/* Prints the time of calls that pass through, without a network: on MPI_COMM_SELF. */
#include "test.h"

static double per_call(void (*call)(void)) {
	enum { BATCH = 2000, BATCHES = 200 };
	double best = 1;
	for (int b = 0; b < BATCHES; b++) {
		double begin = MPI_Wtime();
		for (int i = 0; i < BATCH; i++) {
			call();
		}
		double each = (MPI_Wtime() - begin) / BATCH;
		best = each < best ? each : best;
	}
	return best * 1e9;
}

static char buf[1 << 16];
static void small_bcast(void) { OK(MPI_Bcast(buf, 8, MPI_BYTE, 0, MPI_COMM_SELF)); }
static void large_bcast(void) { OK(MPI_Bcast(buf, sizeof(buf), MPI_BYTE, 0, MPI_COMM_SELF)); }
static void barrier(void) { OK(MPI_Barrier(MPI_COMM_SELF)); }
static void allgather(void) { OK(MPI_Allgather(MPI_IN_PLACE, 0, MPI_BYTE, buf, 8, MPI_BYTE, MPI_COMM_SELF)); }

int main(int argc, char **argv) {
	start(&argc, &argv, MPI_THREAD_SINGLE);
	double small = per_call(small_bcast), large = per_call(large_bcast), b = per_call(barrier), a = per_call(allgather);
	if (rank == 0) {
		printf("ns per call: bcast of 8 bytes %.0f, of 64 KiB %.0f, barrier %.0f, allgather of 8 bytes %.0f\n", small, large, b, a);
	}
	return passed();
}
