/* Joins and leaves a job many times. Neither descriptors nor threads may add up. */
#include <dirent.h>
#include <pthread.h>

#include "test.h"

enum { cycles = 40, warm = 10, spare_threads = 6 };

static int entries(const char *path) {
	int n = 0;
	DIR *d = opendir(path);
	CHECK(d != NULL);
	while (readdir(d) != NULL) {
		n++;
	}
	closedir(d);
	return n;
}

static void once(int seed) {
	unsigned char mine[5000], all[10000];
	allcast_comm comm = join_job(), sub;
	allcast_queue queue;
	allcast_request request;
	allcast_completion done;
	int fd;
	size_t n;
	OK(allcast_split(comm, 0, 0, -1, &sub)); /* closed with the job */
	OK(allcast_queue_new(&queue));
	OK(allcast_queue_fd(queue, &fd));
	allcast_call c = ALLCAST_CALL_INIT;
	c.queue = queue;
	fill(mine, seed, rank, sizeof(mine));
	OK(allcast_start_allgather(sub, mine, all, sizeof(mine), &c, &request));
	OK(allcast_queue_next(queue, &done, 1, -1, &n));
	OK(allcast_wait(done.request, 0, NULL));
	for (int r = 0; r < size; r++) {
		CHECK(holds(all + 5000 * r, seed, r, 5000));
	}
	OK(allcast_queue_free(queue));
	OK(allcast_close(comm));
}

int main(void) {
	int fds = 0, threads = 0;
	for (int i = 0; i < cycles; i++) {
		once(i);
		if (i == warm) {
			fds = entries("/proc/self/fd");
			threads = entries("/proc/self/task");
		}
	}
	CHECK(entries("/proc/self/fd") <= fds);
	CHECK(entries("/proc/self/task") <= threads + spare_threads); /* Go keeps threads that were needed once */
	return passed();
}
