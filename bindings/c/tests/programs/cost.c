/* Prints the time of calls in ns: of a function that does nothing in Go, and of barriers and allgathers of one byte, in
 * each form. The time is that of the fastest batch, because other processes may be running. Also prints the number of
 * threads with 8 operations in flight. The argument is the number of calls. */
#include <dirent.h>
#include <time.h>

#include "test.h"

enum { in_flight = 8, large = 1 << 20, batch = 100 };

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int threads(void) {
	int n = -2; /* . and .. */
	DIR *d = opendir("/proc/self/task");
	CHECK(d != NULL);
	while (readdir(d) != NULL) {
		n++;
	}
	closedir(d);
	return n;
}

#define TIME(name, ...)                                                                  \
	do {                                                                                    \
		for (int i = 0; i < calls / 10; i++) {                                                 \
			__VA_ARGS__;                                                                          \
		}                                                                                      \
		double best = 1e18;                                                                    \
		for (int round = 0; round < calls / batch; round++) {                                  \
			double begin = now();                                                                 \
			for (int i = 0; i < batch; i++) {                                                     \
				__VA_ARGS__;                                                                         \
			}                                                                                     \
			double took = (now() - begin) / batch;                                                \
			best = took < best ? took : best;                                                     \
		}                                                                                      \
		if (rank == 0) {                                                                       \
			printf("%s %.0f ns/op\n", name, best);                                                \
		}                                                                                      \
	} while (0)

int main(int argc, char **argv) {
	CHECK(argc == 2);
	int calls = atoi(argv[1]), n;
	allcast_comm comm = join_job();
	allcast_request request;
	char mine = 1, *all = need(malloc((size_t)size));
	TIME("empty", OK(allcast_size(comm, &n)));
	TIME("barrier", OK(allcast_barrier(comm, NULL)));
	TIME("start-barrier", OK(allcast_start_barrier(comm, NULL, &request)); OK(allcast_wait(request, -1, NULL)));
	TIME("allgather", OK(allcast_allgather(comm, &mine, all, 1, NULL)));
	TIME("start-allgather", OK(allcast_start_allgather(comm, &mine, all, 1, NULL, &request));
		OK(allcast_wait(request, -1, NULL)));
	free(all);

	allcast_queue queue;
	allcast_completion done[in_flight];
	size_t got;
	OK(allcast_queue_new(&queue));
	allcast_call c = ALLCAST_CALL_INIT;
	c.queue = queue;
	TIME("queue-barrier", OK(allcast_start_barrier(comm, &c, &request));
		OK(allcast_queue_next(queue, done, 1, -1, &got)); OK(allcast_wait(done[0].request, 0, NULL)));

	char *bufs[in_flight];
	int most = 0;
	for (int i = 0; i < in_flight; i++) {
		bufs[i] = need(calloc(large, 1));
	}
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < in_flight; i++) {
			OK(allcast_start_broadcast(comm, bufs[i], large, i % size, &c, &request));
		}
		for (int left = in_flight; left > 0; left -= (int)got) {
			most = threads() > most ? threads() : most;
			OK(allcast_queue_next(queue, done, in_flight, -1, &got));
			for (size_t i = 0; i < got; i++) {
				OK(allcast_wait(done[i].request, 0, NULL));
			}
		}
	}
	for (int i = 0; i < in_flight; i++) {
		free(bufs[i]);
	}
	if (rank == 0) {
		printf("threads %d threads\n", most);
	}
	OK(allcast_queue_free(queue));
	OK(allcast_close(comm));
	return passed();
}
