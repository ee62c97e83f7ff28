/* Ranks that exit without closing their communicator. The argument says which ranks do, or "stackless": all do, and
 * their main thread gives up its alternate stack for signals before it exits, while signals of the Go runtime arrive.
 * With "close", one rank leaves without waiting for the others. */
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
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

static char stack[1 << 16];
static pthread_t main_thread;

static void set_stack(int flags) {
	stack_t s = {.ss_sp = stack, .ss_size = sizeof(stack), .ss_flags = flags};
	CHECK(sigaltstack(&s, NULL) == 0);
}

/* Sends the signal with which the Go runtime preempts its threads. */
static void *preempt_forever(void *unused) {
	while (pthread_kill(main_thread, SIGURG) == 0) {
		sem_post(&started);
	}
	return unused;
}

int main(int argc, char **argv) {
	CHECK(argc == 2);
	bool stackless = strcmp(argv[1], "stackless") == 0;
	if (stackless) {
		set_stack(0);
	}
	comm = join_job();
	unsigned char mine[1000], all[3000];
	fill(mine, 1, rank, sizeof(mine));
	int got = allcast_allgather(comm, mine, all, sizeof(mine), NULL);
	/* A rank that leaves without waiting may fail a call that others have not completed. */
	bool left = rank != 1 && strcmp(argv[1], "close") == 0 && got != ALLCAST_OK;
	CHECK(left ? allcast_error_rank() == 1 : got == ALLCAST_OK);
	for (int r = 0; r < size && !left; r++) {
		CHECK(holds(all + 1000 * r, 1, r, 1000));
	}
	if (stackless) {
		set_stack(SS_DISABLE);
		pthread_t t;
		main_thread = pthread_self();
		CHECK(sem_init(&started, 0, 0) == 0);
		CHECK(pthread_create(&t, NULL, preempt_forever, NULL) == 0 && sem_wait(&started) == 0);
		exit(passed());
	}
	if (strcmp(argv[1], "all") == 0) {
		exit(passed());
	}
	if (rank == 1 && strcmp(argv[1], "close") == 0) {
		CHECK(allcast_close_within(comm, -1) == ALLCAST_ERR_INVALID);
		OK(allcast_close_within(comm, 0)); /* waits for no rank */
		CHECK(allcast_close_within(comm, 0) == ALLCAST_ERR_CLOSED);
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
