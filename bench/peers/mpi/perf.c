/*
 * One MPI rank, measured as "allcast perf" measures an Allcast rank: fill, barrier, operation,
 * barrier, verify. Only the operation is timed, and an iteration takes as long as its slowest rank.
 * Rank 0 prints one line of JSON per size.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef MPICH
/*
 * MPICH polls without yielding, which suits one processor per rank. Here ranks share processors,
 * so a poll without events yields, as Open MPI does with an option. This definition replaces that
 * of the C library in the whole program.
 */
int epoll_wait(int fd, struct epoll_event *events, int n, int timeout)
{
	int k = (int)syscall(SYS_epoll_wait, fd, events, n, timeout);

	if (k == 0 && timeout == 0)
		sched_yield();
	return k;
}
#endif

/* The pattern of "allcast perf". It differs in each call, so that stale data is detected. */
static uint64_t word(uint64_t seed, uint64_t i)
{
	uint64_t x = seed + i * 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
	x = (x ^ x >> 29) * 0xd6e8feb86659fd93u;
	return x ^ x >> 32;
}

static uint64_t seed_of(uint64_t call, int rank)
{
	return word(word(0, call), (uint64_t)rank);
}

static void fill(unsigned char *b, size_t n, uint64_t seed)
{
	for (uint64_t i = 0; n > 0; i++) {
		uint64_t w = word(seed, i);
		size_t k = n < 8 ? n : 8;

		memcpy(b, &w, k);
		b += k;
		n -= k;
	}
}

static int64_t count_wrong(const unsigned char *b, size_t n, uint64_t seed)
{
	int64_t wrong = 0;

	for (uint64_t i = 0; n > 0; i++) {
		uint64_t w = word(seed, i);
		size_t k = n < 8 ? n : 8;

		if (memcmp(b, &w, k) != 0)
			for (size_t j = 0; j < k; j++)
				wrong += b[j] != ((unsigned char *)&w)[j];
		b += k;
		n -= k;
	}
	return wrong;
}

static double cpu_us(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 + u.ru_utime.tv_usec + u.ru_stime.tv_usec;
}

/* The peak resident memory in KiB. Unlike getrusage's value, it excludes the program that called
 * exec to start this one. */
static int64_t peak_kib(void)
{
	char line[256];
	int64_t kib = 0;
	FILE *f = fopen("/proc/self/status", "r");

	if (!f)
		return 0;
	while (fgets(line, sizeof line, f))
		if (!strncmp(line, "VmHWM:", 6))
			kib = strtoll(line + 6, NULL, 10);
	fclose(f);
	return kib;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Measures one size; rank 0 prints the result. */
static void measure(int gather, size_t n, int iters, int warmup, int rank, int size)
{
	static uint64_t call; /* number of calls so far, the same on all ranks */
	unsigned char *recv = malloc(gather ? n * (size_t)size : n);
	unsigned char *send = gather ? malloc(n) : recv;
	double *times = calloc((size_t)iters, sizeof *times), *slowest = calloc((size_t)iters, sizeof *slowest);
	int64_t wrong = 0, all_wrong = 0;
	double cpu = 0, all_cpu = 0;

	if (!recv || !send || !times || !slowest)
		MPI_Abort(MPI_COMM_WORLD, 1);
	for (int i = -warmup; i < iters; i++) {
		call++;
		if (gather || rank == 0)
			fill(send, n, seed_of(call, gather ? rank : 0));
		MPI_Barrier(MPI_COMM_WORLD);

		double cpu0 = cpu_us(), t0 = MPI_Wtime();

		if (gather)
			MPI_Allgather(send, (int)n, MPI_BYTE, recv, (int)n, MPI_BYTE, MPI_COMM_WORLD);
		else
			MPI_Bcast(recv, (int)n, MPI_BYTE, 0, MPI_COMM_WORLD);

		double t1 = MPI_Wtime(), cpu1 = cpu_us();

		MPI_Barrier(MPI_COMM_WORLD);
		if (gather)
			for (int r = 0; r < size; r++)
				wrong += count_wrong(recv + n * (size_t)r, n, seed_of(call, r));
		else
			wrong += count_wrong(recv, n, seed_of(call, 0));
		if (i >= 0) {
			times[i] = (t1 - t0) * 1e6;
			cpu += cpu1 - cpu0;
		}
	}

	int64_t peak = peak_kib(), max_peak = 0;

	MPI_Reduce(times, slowest, iters, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
	MPI_Reduce(&wrong, &all_wrong, 1, MPI_INT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
	MPI_Reduce(&cpu, &all_cpu, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	MPI_Reduce(&peak, &max_peak, 1, MPI_INT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
	if (rank == 0) {
		qsort(slowest, (size_t)iters, sizeof *slowest, by_size);
		printf("{\"ranks\":%d,\"bytes\":%zu,\"wrong\":%lld,\"p50_us\":%.3f,\"cpu_us\":%.3f,\"peak_kib\":%lld}\n", size, n,
		       (long long)all_wrong, slowest[(iters + 1) / 2 - 1], all_cpu / iters / size, (long long)max_peak);
		fflush(stdout);
	}
	if (gather)
		free(send);
	free(recv);
	free(times);
	free(slowest);
}

int main(int argc, char **argv)
{
	int rank, size;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (int i = 2; i < argc; i++) {
		unsigned long long n;
		int iters, warmup;

		if (sscanf(argv[i], "%llu:%d:%d", &n, &iters, &warmup) != 3 || iters < 1) {
			fprintf(stderr, "usage: %s broadcast|allgather BYTES:ITERATIONS:WARMUP...\n", argv[0]);
			MPI_Abort(MPI_COMM_WORLD, 2);
		}
		measure(!strcmp(argv[1], "allgather"), n, iters, warmup, rank, size);
	}
#ifdef MPICH
	/* With Debian's MPICH over UCX's TCP, MPI_Finalize does not return here. */
	MPI_Barrier(MPI_COMM_WORLD);
	_exit(0);
#endif
	MPI_Finalize();
	return 0;
}
