/* Ranks that exit without closing their communicator. The argument says which ranks do. */
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#include "test.h"

static allcast_comm comm;
static sem_t started;

/* Is waiting when the process exits. */
static void *wait_forever(void *unused) {
	(void)unused;
	allcast_request request;
	OK(allcast_start_recv(comm, NULL, 0, ALLCAST_ANY_SOURCE, 1, NULL, &request));
	CHECK(sem_post(&started) == 0);
	allcast_wait(request, -1, NULL);
	for (;;) {
		pause();
	}
}

int main(int argc, char **argv) {
	CHECK(argc == 2);
	comm = join_job();
	unsigned char mine[1000], all[3000];
	fill(mine, 1, rank, sizeof(mine));
	OK(allcast_allgather(comm, mine, all, sizeof(mine), NULL));
	for (int r = 0; r < size; r++) {
		CHECK(holds(all + 1000 * r, 1, r, 1000));
	}
	if (strcmp(argv[1], "all") == 0) {
		exit(passed());
	}
	if (rank == 1) {
		pthread_t t;
		CHECK(sem_init(&started, 0, 0) == 0);
		CHECK(pthread_create(&t, NULL, wait_forever, NULL) == 0 && sem_wait(&started) == 0);
		exit(passed());
	}
	/* The rank that has left is named at once: the timeout is longer than the test. */
	int code = allcast_barrier(comm, NULL);
	CHECK(code == ALLCAST_ERR_CLOSED || code == ALLCAST_ERR_RANK_LOST);
	CHECK(allcast_error_rank() == 1);
	OK(allcast_close(comm));
	return passed();
}
