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

static uint64_t seed_of(uint64_t call, int rank, int block)
{
	return word(word(0, call), (uint64_t)rank | (uint64_t)block << 32);
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

/* Elements are small whole numbers, whose sum is exact. */
static float element(uint64_t seed, uint64_t i)
{
	return (float)((int64_t)word(seed, i) >> 52);
}

static void fill_elements(float *f, size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n; i++)
		f[i] = element(seed, i);
}

/* Compares n elements of the sum over all ranks, from number first on. */
static int64_t count_wrong_sums(const float *f, size_t n, size_t first, uint64_t call, int size)
{
	int64_t wrong = 0;

	for (size_t i = 0; i < n; i++) {
		float sum = 0;

		for (int r = 0; r < size; r++)
			sum += element(seed_of(call, r, 0), first + i);
		if (f[i] != sum)
			wrong += sizeof *f;
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

enum { MESSAGES = 64 }; /* of a stream */

/* One operation of n bytes on one rank. */
struct job {
	const struct operation *op;
	size_t n, in, out; /* size of a block, and of both buffers */
	unsigned char *send, *recv;
	int rank, size;
};

struct operation {
	const char *name;
	void (*layout)(struct job *);
	void (*run)(struct job *);
	int reduces;
	int trips; /* messages in a row, in one iteration; 0 for 1 */
};

static void broadcast_layout(struct job *j) { j->in = j->rank == 0 ? j->n : 0; j->out = j->n; }
static void allgather_layout(struct job *j) { j->in = j->n; j->out = j->n * (size_t)j->size; }
static void alltoall_layout(struct job *j) { j->in = j->out = j->n * (size_t)j->size; }
static void reduce_scatter_layout(struct job *j) { j->in = j->n * (size_t)j->size; j->out = j->n; }
static void gather_layout(struct job *j) { j->in = j->n; j->out = j->rank == 0 ? j->n * (size_t)j->size : 0; }
static void scatter_layout(struct job *j) { j->in = j->rank == 0 ? j->n * (size_t)j->size : 0; j->out = j->n; }
static void reduce_layout(struct job *j) { j->in = j->n; j->out = j->rank == 0 ? j->n : 0; }
static void equal_layout(struct job *j) { j->in = j->out = j->n; }

static void stream_layout(struct job *j)
{
	j->in = j->rank == 0 ? MESSAGES * j->n : 0;
	j->out = j->rank == 0 ? 0 : MESSAGES * j->n;
}

static void broadcast(struct job *j)
{
	MPI_Bcast(j->recv, (int)j->n, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static void allgather(struct job *j)
{
	MPI_Allgather(j->send, (int)j->n, MPI_BYTE, j->recv, (int)j->n, MPI_BYTE, MPI_COMM_WORLD);
}

static void gather(struct job *j)
{
	MPI_Gather(j->send, (int)j->n, MPI_BYTE, j->recv, (int)j->n, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static void scatter(struct job *j)
{
	MPI_Scatter(j->send, (int)j->n, MPI_BYTE, j->recv, (int)j->n, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static void alltoall(struct job *j)
{
	MPI_Alltoall(j->send, (int)j->n, MPI_BYTE, j->recv, (int)j->n, MPI_BYTE, MPI_COMM_WORLD);
}

static void allreduce(struct job *j)
{
	MPI_Allreduce(j->send, j->recv, (int)(j->n / sizeof(float)), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void reduce(struct job *j)
{
	MPI_Reduce(j->send, j->recv, (int)(j->n / sizeof(float)), MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
}

static void reduce_scatter(struct job *j)
{
	MPI_Reduce_scatter_block(j->send, j->recv, (int)(j->n / sizeof(float)), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void pingpong(struct job *j)
{
	if (j->rank == 0)
		MPI_Send(j->send, (int)j->n, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
	MPI_Recv(j->recv, (int)j->n, MPI_BYTE, 1 - j->rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (j->rank == 1)
		MPI_Send(j->send, (int)j->n, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
}

static void stream(struct job *j)
{
	MPI_Request all[MESSAGES];

	for (int i = 0; i < MESSAGES; i++)
		if (j->rank == 0)
			MPI_Isend(j->send + (size_t)i * j->n, (int)j->n, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &all[i]);
		else
			MPI_Irecv(j->recv + (size_t)i * j->n, (int)j->n, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &all[i]);
	MPI_Waitall(MESSAGES, all, MPI_STATUSES_IGNORE);
	if (j->rank == 0)
		MPI_Recv(NULL, 0, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	else
		MPI_Send(NULL, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
}

static const struct operation operations[] = {
	{"broadcast", broadcast_layout, broadcast, 0, 0},
	{"allgather", allgather_layout, allgather, 0, 0},
	{"gather", gather_layout, gather, 0, 0},
	{"scatter", scatter_layout, scatter, 0, 0},
	{"alltoall", alltoall_layout, alltoall, 0, 0},
	{"reduce", reduce_layout, reduce, 1, 0},
	{"allreduce", equal_layout, allreduce, 1, 0},
	{"reduce-scatter", reduce_scatter_layout, reduce_scatter, 1, 0},
	{"pingpong", equal_layout, pingpong, 0, 2},
	{"stream", stream_layout, stream, 0, 0},
};

/* The rank that contributes block k of the receive buffer, and the number of that block among its
 * blocks. */
static uint64_t source(const struct job *j, uint64_t call, int k)
{
	if (j->op->run == allgather || j->op->run == gather)
		return seed_of(call, k, 0);
	if (j->op->run == scatter)
		return seed_of(call, 0, j->rank);
	if (j->op->run == alltoall)
		return seed_of(call, k, j->rank);
	if (j->op->run == pingpong)
		return seed_of(call, 1 - j->rank, 0);
	return seed_of(call, 0, k);
}

static void contribute(struct job *j, uint64_t call)
{
	unsigned char *b = j->op->run == broadcast ? j->recv : j->send;

	if (j->op->reduces)
		fill_elements((float *)b, j->in / sizeof(float), seed_of(call, j->rank, 0));
	else
		for (size_t k = 0; k * j->n < j->in; k++)
			fill(b + k * j->n, j->n, seed_of(call, j->rank, (int)k));
}

static int64_t verify(const struct job *j, uint64_t call)
{
	int64_t wrong = 0;
	size_t first = j->op->run == reduce_scatter ? (size_t)j->rank * j->n / sizeof(float) : 0;

	if (j->op->reduces)
		return count_wrong_sums((const float *)j->recv, j->out / sizeof(float), first, call, j->size);
	for (size_t k = 0; k * j->n < j->out; k++)
		wrong += count_wrong(j->recv + k * j->n, j->n, source(j, call, (int)k));
	return wrong;
}

/* Measures one size; rank 0 prints the result. */
static void measure(const struct operation *op, size_t n, int iters, int warmup, int rank, int size)
{
	static uint64_t call; /* number of calls so far, the same on all ranks */
	struct job j = {.op = op, .n = n, .rank = rank, .size = size};
	double *times = calloc((size_t)iters, sizeof *times), *slowest = calloc((size_t)iters, sizeof *slowest);
	int64_t wrong = 0, all_wrong = 0;
	double cpu = 0, all_cpu = 0;

	op->layout(&j);
	j.recv = malloc(j.out + 1);
	j.send = malloc(op->run == broadcast ? 1 : j.in + 1); /* a broadcast works in place */
	if (!j.recv || !j.send || !times || !slowest)
		MPI_Abort(MPI_COMM_WORLD, 1);
	for (int i = -warmup; i < iters; i++) {
		call++;
		contribute(&j, call);
		MPI_Barrier(MPI_COMM_WORLD);

		double cpu0 = cpu_us(), t0 = MPI_Wtime();

		op->run(&j);

		double t1 = MPI_Wtime(), cpu1 = cpu_us();

		MPI_Barrier(MPI_COMM_WORLD);
		wrong += verify(&j, call);
		if (i >= 0) {
			times[i] = (t1 - t0) * 1e6 / (op->trips ? op->trips : 1);
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
	free(j.send);
	free(j.recv);
	free(times);
	free(slowest);
}

int main(int argc, char **argv)
{
	int rank, size;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	const struct operation *op = NULL;

	for (size_t i = 0; argc > 1 && i < sizeof operations / sizeof *operations; i++)
		if (!strcmp(argv[1], operations[i].name))
			op = &operations[i];
	for (int i = 2; i < argc; i++) {
		unsigned long long n;
		int iters, warmup;

		if (!op || sscanf(argv[i], "%llu:%d:%d", &n, &iters, &warmup) != 3 || iters < 1) {
			fprintf(stderr, "usage: %s OPERATION BYTES:ITERATIONS:WARMUP...\n", argv[0]);
			MPI_Abort(MPI_COMM_WORLD, 2);
		}
		measure(op, n, iters, warmup, rank, size);
	}
#ifdef MPICH
	/* With Debian's MPICH over UCX's TCP, MPI_Finalize does not return here. */
	MPI_Barrier(MPI_COMM_WORLD);
	_exit(0);
#endif
	MPI_Finalize();
	return 0;
}
