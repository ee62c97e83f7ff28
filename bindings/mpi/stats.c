/* What the calls of this process did, for the table of ALLCAST_MPI=stats. */
#include <stdio.h>
#include <string.h>

#include "core.h"

enum { TAKEN, BYTES, NANOSECONDS, COMPARED, SAVED, PASSED, COLUMNS = PASSED + REASONS };

static _Atomic int64_t counters[KINDS][COLUMNS];

static void add(enum kind kind, int column, int64_t n) {
	atomic_fetch_add_explicit(&counters[kind][column], n, memory_order_relaxed);
}

void count_passed(enum kind kind, enum reason why) { add(kind, PASSED + (int)why, 1); }

/* Returns the time that MPI would take, between and beyond the sizes that were measured, or 0 if it is unknown. */
double expected(const struct comm *c, enum kind kind, int64_t bytes) {
	const struct curve *m = &c->mpi_times[kind];
	if (m->n == 0) {
		return 0;
	}
	if (m->n == 1 || bytes <= m->bytes[0]) {
		return m->seconds[0];
	}
	int i = 1;
	while (i < m->n - 1 && m->bytes[i] < bytes) {
		i++;
	}
	double slope = (m->seconds[i] - m->seconds[i - 1]) / (double)(m->bytes[i] - m->bytes[i - 1]);
	double at = m->seconds[i] + slope * (double)(bytes - m->bytes[i]);
	return at > 0 ? at : 0;
}

void count_taken(const struct transfer *t, double seconds) {
	if (t->kind == KINDS) {
		return; /* a measurement */
	}
	add(t->kind, TAKEN, 1);
	add(t->kind, BYTES, t->bytes);
	add(t->kind, NANOSECONDS, (int64_t)(seconds * 1e9));
	double mpi = process.stats ? expected(t->comm, t->kind, t->bytes) : 0;
	if (mpi > 0) {
		add(t->kind, COMPARED, 1);
		add(t->kind, SAVED, (int64_t)((mpi - seconds) * 1e9));
	}
}

static const char *const names[KINDS] = {
	[BCAST] = "MPI_Bcast",
	[ALLGATHER] = "MPI_Allgather",
	[ALLGATHERV] = "MPI_Allgatherv",
	[BARRIER] = "MPI_Barrier",
	[REDUCE_SCATTER_BLOCK] = "MPI_Reduce_scatter_block",
	[ALLREDUCE] = "MPI_Allreduce",
	[IBCAST] = "MPI_Ibcast",
	[IALLGATHER] = "MPI_Iallgather",
	[IALLGATHERV] = "MPI_Iallgatherv",
};

static const char *const reasons[REASONS] = {
	[SMALL] = "smaller than the threshold",
	[NOT_JOINED] = "the communicator has not joined yet",
	[ONE_RANK] = "a communicator of one rank",
	[INTER] = "an inter-communicator",
	[BEYOND_WORLD] = "processes outside MPI_COMM_WORLD",
	[NO_MULTICAST] = "multicast does not work",
	[SLOWER] = "MPI was measured to be faster",
	[TOO_MANY] = "too many communicators that joined before MPI_COMM_WORLD",
	[UNSUITABLE] = "no aggregators, or an operator or type that they cannot reduce",
};

/* Prints the table on rank 0, added up over all ranks. */
void print_stats(void) {
	int64_t mine[KINDS][COLUMNS], all[KINDS][COLUMNS], why[REASONS] = {0};
	for (int k = 0; k < KINDS; k++) {
		for (int i = 0; i < COLUMNS; i++) {
			mine[k][i] = atomic_load(&counters[k][i]);
		}
	}
	PMPI_Reduce(mine, all, KINDS * COLUMNS, MPI_INT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
	if (process.rank != 0) {
		return;
	}
	fprintf(stderr, "allcast: MPI calls of all %d ranks together (time and time saved: mean per rank)\n", process.size);
	fprintf(stderr, "%-26s%10s%14s%11s%11s%10s\n", "call", "multicast", "bytes", "time", "saved", "passed");
	for (int k = 0; k < KINDS; k++) {
		int64_t passed = 0;
		char saved[32] = "-";
		for (int r = 0; r < REASONS; r++) {
			passed += all[k][PASSED + r];
			why[r] += all[k][PASSED + r];
		}
		if (passed + all[k][TAKEN] == 0) {
			continue;
		}
		if (all[k][COMPARED] > 0) {
			snprintf(saved, sizeof(saved), "%.3f s", (double)all[k][SAVED] / 1e9 / process.size);
		}
		fprintf(stderr, "%-26s%10lld%14lld%9.3f s%11s%10lld\n", names[k], (long long)all[k][TAKEN],
			(long long)all[k][BYTES], (double)all[k][NANOSECONDS] / 1e9 / process.size, saved, (long long)passed);
	}
	for (int r = 0; r < REASONS; r++) {
		if (why[r] > 0) {
			fprintf(stderr, "passed through: %10lld  %s\n", (long long)why[r], reasons[r]);
		}
	}
}
