/* Threads that use the library at the same time: each has a communicator of its own, and all share one for messages. */
#include <dirent.h>
#include <pthread.h>

#include "test.h"

enum { threads = 8, rounds = 60, bytes = 3000 };

static allcast_comm world, comms[threads];

static void collectives(int id, int round, allcast_comm comm) {
	unsigned char mine[bytes], *all = need(malloc((size_t)size * bytes));
	int seed = id * 1000 + round, root = round % size;
	fill(mine, seed, rank, bytes);
	OK(allcast_allgather(comm, mine, all, bytes, NULL));
	for (int r = 0; r < size; r++) {
		CHECK(holds(all + (size_t)r * bytes, seed, r, bytes));
	}
	allcast_request a, b;
	OK(allcast_start_broadcast(comm, mine, bytes, root, NULL, &a));
	int64_t sum = seed + rank, total = 0;
	OK(allcast_start_allreduce(comm, &sum, &total, sizeof(sum), ALLCAST_INT64, ALLCAST_SUM, NULL, &b));
	OK(allcast_wait(b, -1, NULL));
	OK(allcast_wait(a, -1, NULL));
	CHECK(holds(mine, seed, root, bytes) && total == (int64_t)seed * size + size * (size - 1) / 2);
	free(all);
}

static void exchange(int id, int round) {
	unsigned char out[bytes], in[bytes];
	int right = (rank + 1) % size, left = (rank + size - 1) % size;
	allcast_request sent;
	allcast_message m;
	fill(out, round, rank, bytes);
	OK(allcast_start_send(world, out, bytes, right, id, NULL, &sent));
	OK(allcast_recv(world, in, bytes, left, id, NULL, &m));
	OK(allcast_wait(sent, -1, NULL));
	CHECK(m.source == left && m.tag == id && m.bytes == bytes && holds(in, round, left, bytes));
}

/* Each thread makes mistakes of its own, and must see only its own error. */
static void mistake(int id) {
	char want[32];
	snprintf(want, sizeof(want), "tag -%d", id + 1);
	EXPECT(ALLCAST_ERR_INVALID, allcast_send(world, "", 0, 0, -(id + 1), NULL));
	SAYS(want);
}

static void *work(void *arg) {
	int id = (int)(intptr_t)arg;
	for (int round = 0; round < rounds; round++) {
		collectives(id, round, comms[id]);
		exchange(id, round);
		mistake(id);
	}
	OK(allcast_close(comms[id]));
	return NULL;
}

/* A thread that was never known to the library, and ends at once. */
static void *visit(void *unused) {
	(void)unused;
	int r;
	OK(allcast_rank(world, &r));
	CHECK(r == rank);
	return NULL;
}

/* Of all threads that close a communicator, one does. */
static void *close_world(void *closed) {
	int code = allcast_close(world);
	CHECK(code == ALLCAST_OK || code == ALLCAST_ERR_CLOSED);
	__atomic_add_fetch((int *)closed, code == ALLCAST_OK, __ATOMIC_SEQ_CST);
	return NULL;
}

/* The threads of the library do not add up with those of the program. */
static void count_threads(void) {
	int n = -2; /* . and .. */
	DIR *d = opendir("/proc/self/task");
	CHECK(d != NULL);
	while (readdir(d) != NULL) {
		n++;
	}
	closedir(d);
	CHECK(n <= 20);
}

int main(void) {
	world = join_job();
	pthread_t all[threads];
	for (int i = 0; i < threads; i++) {
		OK(allcast_split(world, 0, 0, -1, &comms[i]));
	}
	for (int i = 0; i < threads; i++) {
		CHECK(pthread_create(&all[i], NULL, work, (void *)(intptr_t)i) == 0);
	}
	for (int i = 0; i < 300; i++) {
		pthread_t t;
		CHECK(pthread_create(&t, NULL, visit, NULL) == 0 && pthread_join(t, NULL) == 0);
	}
	for (int i = 0; i < threads; i++) {
		CHECK(pthread_join(all[i], NULL) == 0);
	}
	count_threads();
	int closed = 0;
	for (int i = 0; i < threads; i++) {
		CHECK(pthread_create(&all[i], NULL, close_world, &closed) == 0);
	}
	for (int i = 0; i < threads; i++) {
		CHECK(pthread_join(all[i], NULL) == 0);
	}
	CHECK(closed == 1);
	return passed();
}
