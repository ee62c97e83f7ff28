/* Every operation in both forms, with buffers that end where the data ends, compared byte by byte. */
#include "test.h"

#define ALGORITHM_LIMIT 32

static allcast_comm comm;
static allcast_call call = ALLCAST_CALL_INIT;
static bool starts; /* whether to use the forms that start an operation */

static allcast_request request;

/* Waits for the request, if its operation was started. */
static int finish(int code) {
	if (code != ALLCAST_OK) {
		return code;
	}
	CHECK(request != 0);
	CHECK(strlen(allcast_algorithm(request)) > 0 && strlen(allcast_algorithm(request)) < ALGORITHM_LIMIT);
	return allcast_wait(request, -1, NULL);
}

#define RUN(name, ...)                                                                                \
	(starts ? finish(allcast_start_##name(comm, __VA_ARGS__, &call, &request))                 \
			: allcast_##name(comm, __VA_ARGS__, &call))

static void *buffer(size_t bytes) { return memset(need(malloc(bytes > 0 ? bytes : 1)), 0xEE, bytes); }

static void check_blocks(const unsigned char *all, int seed, size_t bytes) {
	for (int r = 0; r < size; r++) {
		CHECK(holds(all + (size_t)r * bytes, seed, r, bytes));
	}
}

static void broadcast_and_gather(int seed, size_t n) {
	size_t total = (size_t)size * n;
	unsigned char *mine = buffer(n), *all = buffer(total);
	for (int root = 0; root < size; root++) {
		fill(mine, seed, rank, n);
		OK(RUN(broadcast, mine, n, root));
		CHECK(holds(mine, seed, root, n));
	}
	fill(mine, seed, rank, n);
	OK(RUN(allgather, mine, all, n));
	check_blocks(all, seed, n);
	memset(all, 0, total);
	fill(all + (size_t)rank * n, seed, rank, n);
	OK(RUN(allgather, NULL, all, n)); /* in place */
	check_blocks(all, seed, n);

	for (int root = 0; root < size; root++) {
		memset(all, 0, total);
		OK(RUN(gather, mine, rank == root ? all : NULL, n, root));
		if (rank == root) {
			check_blocks(all, seed, n);
		}
		memset(all, 0, total);
		fill(all + (size_t)rank * n, seed, rank, n);
		OK(RUN(gather, rank == root ? NULL : mine, rank == root ? all : NULL, n, root)); /* in place */
		if (rank == root) {
			check_blocks(all, seed, n);
		}

		unsigned char *got = buffer(n);
		for (int r = 0; r < size; r++) {
			fill(all + (size_t)r * n, seed, r, n);
		}
		OK(RUN(scatter, rank == root ? all : NULL, got, n, root));
		CHECK(holds(got, seed, rank, n));
		OK(RUN(scatter, rank == root ? all : NULL, rank == root ? NULL : got, n, root)); /* in place */
		CHECK(holds(rank == root ? all + (size_t)rank * n : got, seed, rank, n));
		free(got);
	}
	free(mine);
	free(all);
}

/* Rank r contributes n + r bytes. */
static void blocks_of_different_sizes(int seed, size_t n) {
	size_t *counts = need(calloc((size_t)size, sizeof(size_t))), total = 0, offset = 0;
	for (int r = 0; r < size; r++) {
		counts[r] = n + (size_t)r;
		offset += r < rank ? counts[r] : 0;
		total += counts[r];
	}
	size_t own = counts[rank];
	unsigned char *mine = buffer(own), *all = buffer(total), *at;
	fill(mine, seed, rank, own);
	for (int in_place = 0; in_place < 2; in_place++) {
		memset(all, 0, total);
		memcpy(all + offset, mine, in_place ? own : 0);
		OK(RUN(allgatherv, in_place ? NULL : mine, all, counts));
		at = all;
		for (int r = 0; r < size; at += counts[r++]) {
			CHECK(holds(at, seed, r, counts[r]));
		}
	}
	int root = size - 1;
	memset(all, 0, total);
	OK(RUN(gatherv, mine, own, rank == root ? all : NULL, rank == root ? counts : NULL, root));
	at = all;
	for (int r = 0; r < size && rank == root; at += counts[r++]) {
		CHECK(holds(at, seed, r, counts[r]));
	}
	unsigned char *got = buffer(own);
	OK(RUN(scatterv, rank == root ? all : NULL, rank == root ? counts : NULL, got, own, root));
	CHECK(holds(got, seed, rank, own));
	free(got);
	free(mine);
	free(all);
	free(counts);
}

static void all_to_all(int seed, size_t n) {
	size_t total = (size_t)size * n;
	unsigned char *out = buffer(total), *in = buffer(total);
	for (int in_place = 0; in_place < 2; in_place++) {
		for (int r = 0; r < size; r++) {
			fill(out + (size_t)r * n, seed + r, rank, n); /* the seed tells the receiver */
		}
		memcpy(in, out, total);
		OK(RUN(alltoall, in_place ? NULL : out, in, n));
		for (int r = 0; r < size; r++) {
			CHECK(holds(in + (size_t)r * n, seed + rank, r, n));
		}
	}
	free(out);
	free(in);

	/* Rank r sends n + r + i bytes to rank i. */
	size_t *send_counts = need(calloc((size_t)size, sizeof(size_t))), out_total = 0;
	size_t *recv_counts = need(calloc((size_t)size, sizeof(size_t))), in_total = 0;
	for (int r = 0; r < size; r++) {
		send_counts[r] = recv_counts[r] = n + (size_t)rank + (size_t)r;
		out_total += send_counts[r];
		in_total += recv_counts[r];
	}
	out = buffer(out_total);
	in = buffer(in_total);
	unsigned char *at = out;
	for (int r = 0; r < size; at += send_counts[r++]) {
		fill(at, seed + r, rank, send_counts[r]);
	}
	OK(RUN(alltoallv, out, send_counts, in, recv_counts));
	at = in;
	for (int r = 0; r < size; at += recv_counts[r++]) {
		CHECK(holds(at, seed + rank, r, recv_counts[r]));
	}
	free(out);
	free(in);
	free(send_counts);
	free(recv_counts);
}

static void coalesced(int seed) {
	enum { n = 5 };
	const size_t bytes[n] = {1, 0, 1000, 7, 30000};
	void *bufs[n], *recvs[n];
	const void *sends[n];
	for (int i = 0; i < n; i++) {
		bufs[i] = buffer(bytes[i]);
		recvs[i] = buffer(bytes[i] * (size_t)size);
		fill(bufs[i], seed + i, rank, bytes[i]);
		sends[i] = bufs[i];
	}
	OK(RUN(allgather_coalesced, sends, recvs, bytes, n));
	OK(RUN(broadcast_coalesced, bufs, bytes, n, size - 1));
	for (int i = 0; i < n; i++) {
		check_blocks(recvs[i], seed + i, bytes[i]);
		CHECK(holds(bufs[i], seed + i, size - 1, bytes[i]));
		free(bufs[i]);
		free(recvs[i]);
	}
	OK(RUN(broadcast_coalesced, NULL, NULL, 0, 0));
}

/* The result of each operator for the inputs rank + 1 of all ranks. */
static long long reduced(int op) {
	long long sum = 0, product = 1, all = ~0LL, any = 0, odd = 0;
	for (int r = 1; r <= size; r++) {
		sum += r;
		product *= r;
		all &= r;
		any |= r;
		odd ^= r;
	}
	switch (op) {
	case ALLCAST_SUM: return sum;
	case ALLCAST_AVERAGE: return sum / size;
	case ALLCAST_MIN: return 1;
	case ALLCAST_MAX: return size;
	case ALLCAST_PRODUCT: return product;
	case ALLCAST_AND: return all;
	case ALLCAST_OR: return any;
	default: return odd;
	}
}

enum { elements = 501 };

/* Checks reductions of one type. */
#define REDUCTIONS(ctype, type, last_op)                                                             \
	static void reductions_##ctype(void) {                                                              \
		size_t n = elements * sizeof(ctype);                                                               \
		ctype *in = buffer(n * (size_t)size), *out = buffer(n);                                            \
		for (int op = ALLCAST_SUM; op <= (last_op); op++) {                                                \
			for (int i = 0; i < elements * size; i++) {                                                       \
				in[i] = (ctype)(rank + 1);                                                                       \
			}                                                                                                 \
			ctype want = (ctype)reduced(op);                                                                  \
			OK(RUN(allreduce, in, out, n, type, op));                                                         \
			for (int i = 0; i < elements; i++) {                                                              \
				CHECK(out[i] == want);                                                                           \
				out[i] = (ctype)(rank + 1);                                                                      \
			}                                                                                                 \
			OK(RUN(allreduce, NULL, out, n, type, op)); /* in place */                                        \
			for (int i = 0; i < elements; i++) {                                                              \
				CHECK(out[i] == want);                                                                           \
			}                                                                                                 \
			memset(out, 0, n);                                                                                \
			OK(RUN(reduce_scatter, in, out, n, type, op));                                                    \
			for (int i = 0; i < elements; i++) {                                                              \
				CHECK(out[i] == want);                                                                           \
			}                                                                                                 \
			memset(out, 0, n);                                                                                \
			OK(RUN(reduce, in, rank == 0 ? out : NULL, n, type, op, 0));                                      \
			for (int i = 0; i < elements && rank == 0; i++) {                                                 \
				CHECK(out[i] == want);                                                                           \
			}                                                                                                 \
		}                                                                                                  \
		free(in);                                                                                          \
		free(out);                                                                                         \
	}

REDUCTIONS(float, ALLCAST_FLOAT32, ALLCAST_PRODUCT)
REDUCTIONS(double, ALLCAST_FLOAT64, ALLCAST_PRODUCT)
REDUCTIONS(int8_t, ALLCAST_INT8, ALLCAST_XOR)
REDUCTIONS(int16_t, ALLCAST_INT16, ALLCAST_XOR)
REDUCTIONS(int32_t, ALLCAST_INT32, ALLCAST_XOR)
REDUCTIONS(int64_t, ALLCAST_INT64, ALLCAST_XOR)
REDUCTIONS(uint8_t, ALLCAST_UINT8, ALLCAST_XOR)
REDUCTIONS(uint16_t, ALLCAST_UINT16, ALLCAST_XOR)
REDUCTIONS(uint32_t, ALLCAST_UINT32, ALLCAST_XOR)
REDUCTIONS(uint64_t, ALLCAST_UINT64, ALLCAST_XOR)

/* Types that C does not have, as bits, and the reductions that the macro leaves out. */
static void other_reductions(void) {
	static const struct {
		int type;
		uint16_t one, three;
	} halves[] = {{ALLCAST_FLOAT16, 0x3C00, 0x4200}, {ALLCAST_BFLOAT16, 0x3F80, 0x4040}};
	CHECK(size == 3);
	for (int h = 0; h < 2; h++) {
		uint16_t in[elements], out[elements];
		for (int i = 0; i < elements; i++) {
			in[i] = halves[h].one;
		}
		OK(RUN(allreduce, in, out, sizeof(in), halves[h].type, ALLCAST_SUM));
		for (int i = 0; i < elements; i++) {
			CHECK(out[i] == halves[h].three);
		}
	}
	unsigned char bits[2] = {rank == 1, 1}, result[2];
	OK(RUN(allreduce, bits, result, 2, ALLCAST_BOOL, ALLCAST_AND));
	CHECK(result[0] == 0 && result[1] == 1);
	OK(RUN(allreduce, bits, result, 2, ALLCAST_BOOL, ALLCAST_OR));
	CHECK(result[0] == 1 && result[1] == 1);

	float x = 10, weighted;
	call.factor = rank + 1;
	OK(RUN(allreduce, &x, &weighted, sizeof(x), ALLCAST_FLOAT32, ALLCAST_PREMULTIPLIED_SUM));
	CHECK(weighted == 60);
	call.factor = 1;

	int32_t in[6] = {rank, rank, rank, rank, rank, rank}, out[3]; /* rank r gets r + 1 of 6 elements */
	size_t counts[3] = {4, 8, 12};
	OK(RUN(reduce_scatterv, in, out, counts, ALLCAST_INT32, ALLCAST_SUM));
	for (int i = 0; i <= rank; i++) {
		CHECK(out[i] == 3);
	}
	int32_t own = rank;
	OK(RUN(reduce, rank == 1 ? NULL : &own, rank == 1 ? &own : NULL, sizeof(own), ALLCAST_INT32, ALLCAST_MAX, 1));
	CHECK(rank != 1 || own == 2);
}

static void messages(int seed, size_t n) {
	int right = (rank + 1) % size, left = (rank + size - 1) % size;
	unsigned char *out = buffer(n), *in = buffer(n);
	fill(out, seed, rank, n);
	allcast_message m;
	allcast_request sent, received;
	OK(allcast_start_recv(comm, in, n, left, 7, NULL, &received));
	OK(allcast_start_send(comm, out, n, right, 7, NULL, &sent));
	OK(allcast_wait(sent, -1, NULL));
	OK(allcast_wait(received, -1, &m));
	CHECK(m.source == left && m.tag == 7 && m.bytes == n && holds(in, seed, left, n));

	memset(in, 0, n);
	if (rank == 0) {
		for (int i = 1; i < size; i++) {
			OK(allcast_recv(comm, in, n, ALLCAST_ANY_SOURCE, 8, NULL, &m));
			CHECK(m.source > 0 && m.source < size && m.tag == 8 && m.bytes == n && holds(in, seed, m.source, n));
		}
	} else {
		OK(allcast_send(comm, out, n, 0, 8, NULL));
	}
	OK(allcast_barrier(comm, NULL));
	free(out);
	free(in);
}

static void algorithms(void) {
	unsigned char in[1000], out[3000];
	static const char *const names[] = {"ring", "bruck", "auto"};
	fill(in, 1, rank, sizeof(in));
	for (int i = 0; i < 3; i++) {
		allcast_call c = ALLCAST_CALL_INIT;
		c.algorithm = names[i];
		OK(allcast_start_allgather(comm, in, out, sizeof(in), &c, &request));
		CHECK(i == 2 || strcmp(allcast_algorithm(request), names[i]) == 0);
		OK(allcast_wait(request, -1, NULL));
		check_blocks(out, 1, sizeof(in));
	}
	allcast_call c = ALLCAST_CALL_INIT;
	c.algorithm = "carrier-pigeon";
	EXPECT(ALLCAST_ERR_INVALID, allcast_allgather(comm, in, out, sizeof(in), &c));
	SAYS("carrier-pigeon");
}

static void communicators(void) {
	allcast_comm half, pair, none;
	int r, n, w;
	OK(allcast_split(comm, rank == 0 ? -1 : 0, -rank, 60000, &half)); /* ranks 2, 1 */
	CHECK((half == 0) == (rank == 0));
	if (half != 0) {
		OK(allcast_rank(half, &r));
		OK(allcast_size(half, &n));
		OK(allcast_world_rank(half, r, &w));
		CHECK(n == 2 && r == 2 - rank && w == rank);
		EXPECT(ALLCAST_ERR_INVALID, allcast_world_rank(half, 2, &w));
		int value = rank, values[2];
		OK(allcast_allgather(half, &value, values, sizeof(value), NULL));
		CHECK(values[0] == 2 && values[1] == 1);
		OK(allcast_close(half));
		EXPECT(ALLCAST_ERR_CLOSED, allcast_barrier(half, NULL));
		EXPECT(ALLCAST_ERR_CLOSED, allcast_close(half));
	}
	static const int members[] = {2, 0};
	if (rank != 1) {
		OK(allcast_subset(comm, members, 2, "pair", -1, &pair));
		OK(allcast_rank(pair, &r));
		CHECK(r == (rank == 2 ? 0 : 1));
		OK(allcast_barrier(pair, NULL));
		OK(allcast_close(pair));
	} else {
		EXPECT(ALLCAST_ERR_INVALID, allcast_subset(comm, members, 2, NULL, -1, &none));
	}
	OK(allcast_shrink(comm, 60000, &half)); /* of all ranks: none has failed */
	OK(allcast_size(half, &n));
	CHECK(n == size);
	OK(allcast_barrier(half, NULL));
	OK(allcast_close(half));
}

static void memory(void) {
	void *p, *q;
	OK(allcast_alloc(comm, 100000, &p));
	CHECK(((char *)p)[0] == 0 && memcmp(p, (char *)p + 1, 99999) == 0);
	fill(p, 3, rank, 100000);
	OK(allcast_broadcast(comm, p, 100000, 1, NULL));
	CHECK(holds(p, 3, 1, 100000));
	OK(allcast_free(comm, p));
	EXPECT(ALLCAST_ERR_INVALID, allcast_free(comm, p));
	OK(allcast_alloc(comm, 0, &p));
	OK(allcast_alloc(comm, 0, &q));
	CHECK(p != NULL && q != NULL && p != q);
	OK(allcast_free(comm, p));
	OK(allcast_free(comm, q));
	OK(allcast_free(comm, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_free(comm, &p));
	if (rank != 0) {
		/* A receive that nobody serves yet holds its memory. */
		OK(allcast_alloc(comm, 64, &p));
		OK(allcast_start_recv(comm, p, 64, 0, 5, NULL, &request));
		EXPECT(ALLCAST_ERR_IN_USE, allcast_free(comm, p));
	}
	OK(allcast_barrier(comm, NULL));
	for (int r = 1; r < size && rank == 0; r++) {
		OK(allcast_send(comm, "x", 1, r, 5, NULL));
	}
	if (rank != 0) {
		allcast_message m;
		OK(allcast_wait(request, -1, &m));
		CHECK(m.bytes == 1 && ((char *)p)[0] == 'x');
		OK(allcast_free(comm, p));
	}
}

static void descriptions(void) {
	char *text;
	OK(allcast_describe(comm, &text));
	char want[64];
	snprintf(want, sizeof(want), "\"rank\":%d,\"size\":%d,\"fabric\":\"ip\"", rank, size);
	CHECK(strstr(text, want) != NULL && strstr(text, "\"multicast\":{\"works\":") != NULL);
	allcast_text_free(text);
	OK(allcast_stats(comm, &text));
	CHECK(strstr(text, "\"sent_bytes\":") != NULL && strstr(text, "\"peers\":{\"") != NULL);
	allcast_text_free(text);
}

int main(void) {
	comm = join_job();
	static const size_t sizes[] = {0, 1, 777, 65539, 300000};
	for (int form = 0; form < 2; form++) {
		starts = form == 1;
		for (int i = 0; i < 5; i++) {
			int seed = 10 * form + i;
			broadcast_and_gather(seed, sizes[i]);
			blocks_of_different_sizes(seed, sizes[i]);
			all_to_all(seed, sizes[i]);
			messages(seed, sizes[i]);
		}
		coalesced(form);
		reductions_float();
		reductions_double();
		reductions_int8_t();
		reductions_int16_t();
		reductions_int32_t();
		reductions_int64_t();
		reductions_uint8_t();
		reductions_uint16_t();
		reductions_uint32_t();
		reductions_uint64_t();
		other_reductions();
	}
	OK(allcast_barrier(comm, NULL));
	OK(allcast_start_barrier(comm, NULL, &request));
	OK(allcast_wait(request, 60000, NULL));
	algorithms();
	communicators();
	memory();
	descriptions();
	OK(allcast_close(comm));
	return passed();
}
