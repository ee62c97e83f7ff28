/* Failures between ranks: codes, and the rank and the phase that messages name. The first argument is the failure. */
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <unistd.h>

#include "test.h"

static allcast_comm comm;
static unsigned char small[64], large[1 << 20];

/* A rank dies. The others name it. Afterwards they continue without it. */
static void killed(void) {
	OK(allcast_barrier(comm, NULL));
	if (rank == 1) {
		raise(SIGKILL);
	}
	EXPECT(ALLCAST_ERR_RANK_LOST, allcast_broadcast(comm, large, sizeof(large), 1, NULL));
	CHECK(allcast_error_rank() == 1 && allcast_error_world_rank() == 1);
	CHECK(strlen(allcast_error_phase()) > 0);
	SAYS("rank 1");
	SAYS(allcast_error_phase());
	allcast_comm rest;
	int n, r;
	OK(allcast_shrink(comm, -1, &rest));
	OK(allcast_size(rest, &n));
	OK(allcast_rank(rest, &r));
	CHECK(n == 2 && r == (rank == 0 ? 0 : 1));
	memset(small, rank, sizeof(small));
	OK(allcast_broadcast(rest, small, sizeof(small), 1, NULL));
	CHECK(small[0] == 2 && small[63] == 2);
	OK(allcast_close(rest));
	OK(allcast_close(comm));
}

static void mismatch(void) {
	EXPECT(ALLCAST_ERR_MISMATCH, allcast_allgather(comm, small, large, rank == 0 ? 64 : 63, NULL));
	SAYS("rank 0 called allgather of 192 bytes");
	SAYS("called allgather of 189 bytes");
	OK(allcast_close(comm));
}

static void aborted(void) {
	if (rank == 2) {
		OK(allcast_abort(comm));
	}
	EXPECT(ALLCAST_ERR_ABORTED, allcast_barrier(comm, NULL));
	CHECK(allcast_error_rank() == 2);
	SAYS("rank 2");
	OK(allcast_close(comm));
}

/* A timeout of one call ends the operation on all ranks, and names the rank that is late. */
static void deadline(void) {
	allcast_call c = ALLCAST_CALL_INIT;
	c.timeout_ms = 300;
	if (rank == 2) {
		/* Nobody sends this message, and the failure of the others ends the receive. */
		EXPECT(ALLCAST_ERR_DEADLINE, allcast_recv(comm, small, sizeof(small), 0, 1, NULL, NULL));
		EXPECT(ALLCAST_ERR_DEADLINE, allcast_barrier(comm, NULL));
	} else if (rank == 1) {
		allcast_request request;
		OK(allcast_start_barrier(comm, NULL, &request));
		OK(allcast_send(comm, "x", 1, 0, 2, NULL)); /* rank 0 must find only rank 2 late */
		EXPECT(ALLCAST_ERR_DEADLINE, allcast_wait(request, -1, NULL));
		CHECK(allcast_error_rank() == 2);
	} else {
		OK(allcast_recv(comm, small, 1, 1, 2, NULL, NULL));
		EXPECT(ALLCAST_ERR_DEADLINE, allcast_barrier(comm, &c));
		CHECK(allcast_error_rank() == 2);
		SAYS("rank 2");
	}
	OK(allcast_close(comm));
}

/* Messages without a match are withdrawn, and the communicator stays intact. */
static void withdrawn(void) {
	allcast_call c = ALLCAST_CALL_INIT;
	c.timeout_ms = 50;
	int next = (rank + 1) % size;
	EXPECT(ALLCAST_ERR_WITHDRAWN, allcast_recv(comm, small, sizeof(small), next, 3, &c, NULL));
	CHECK(allcast_error_rank() == next);
	allcast_request request;
	OK(allcast_start_recv(comm, small, sizeof(small), ALLCAST_ANY_SOURCE, 3, NULL, &request));
	EXPECT(ALLCAST_ERR_TIMEOUT, allcast_wait(request, 10, NULL));
	SAYS("continues");
	OK(allcast_cancel(request));
	EXPECT(ALLCAST_ERR_WITHDRAWN, allcast_wait(request, -1, NULL));
	OK(allcast_barrier(comm, NULL));

	allcast_message m = {.source = 77};
	OK(allcast_start_recv(comm, small, 4, next, 4, NULL, &request));
	OK(allcast_send(comm, large, 100, (rank + size - 1) % size, 4, NULL));
	EXPECT(ALLCAST_ERR_TRUNCATED, allcast_wait(request, -1, &m));
	CHECK(m.source == 77); /* nothing was received */
	OK(allcast_close(comm));
}

/* Giving up a collective aborts the communicator, and the request ends soon. */
static void cancelled(void) {
	allcast_request request;
	if (rank == 0) {
		OK(allcast_start_barrier(comm, NULL, &request));
		OK(allcast_cancel(request));
		EXPECT(ALLCAST_ERR_ABORTED, allcast_wait(request, -1, NULL));
	} else {
		/* Rank 0 never sends this message. A barrier could complete before the cancellation. */
		EXPECT(ALLCAST_ERR_ABORTED, allcast_recv(comm, small, sizeof(small), 0, 1, NULL, NULL));
		CHECK(allcast_error_rank() == 0);
	}
	OK(allcast_close(comm));
}

static sem_t started;

static void *wait_for_message(void *code) {
	allcast_request request;
	OK(allcast_start_recv(comm, small, sizeof(small), ALLCAST_ANY_SOURCE, 1, NULL, &request));
	CHECK(sem_post(&started) == 0);
	*(int *)code = allcast_wait(request, -1, NULL);
	return NULL;
}

/* Closing the job ends operations that other threads wait for. */
static void closed(void) {
	pthread_t t;
	int code = -1;
	CHECK(sem_init(&started, 0, 0) == 0);
	CHECK(pthread_create(&t, NULL, wait_for_message, &code) == 0);
	CHECK(sem_wait(&started) == 0);
	allcast_comm sub;
	OK(allcast_split(comm, 0, 0, -1, &sub));
	OK(allcast_close(comm));
	CHECK(pthread_join(t, NULL) == 0);
	CHECK(code == ALLCAST_ERR_CLOSED);
	EXPECT(ALLCAST_ERR_CLOSED, allcast_barrier(sub, NULL)); /* leaving the job has closed it */
	EXPECT(ALLCAST_ERR_CLOSED, allcast_close(comm));
}

/* Making a communicator without a rank fails within the timeout. */
static void absent(void) {
	allcast_comm sub = 7;
	char token;
	if (rank == 2) {
		OK(allcast_recv(comm, &token, 1, 0, 1, NULL, NULL)); /* the others have given up */
		EXPECT(ALLCAST_ERR_ABORTED, allcast_recv(comm, &token, 1, 0, 1, NULL, NULL));
	} else {
		EXPECT(ALLCAST_ERR_MISSING, allcast_shrink(comm, 200, &sub));
		CHECK(allcast_error_rank() == 2 && sub == 7);
		SAYS("rank 2");
		if (rank == 0) {
			OK(allcast_send(comm, "x", 1, 2, 1, NULL));
		}
		int code = allcast_split(comm, 0, 0, 200, &sub);
		CHECK((code == ALLCAST_ERR_DEADLINE || code == ALLCAST_ERR_ABORTED) && sub == 7); /* here, or there before */
	}
	OK(allcast_close(comm));
}

/* A call that asks for multicast in a job that has none starts nothing. */
static void no_multicast(void) {
	allcast_options o;
	OK(allcast_close(comm));
	OK(allcast_options_new(&o));
	OK(allcast_options_set(o, "no-multicast", "on", 2));
	OK(allcast_join(o, NULL, &comm));
	OK(allcast_options_free(o));
	allcast_call c = ALLCAST_CALL_INIT;
	c.algorithm = "mcast";
	EXPECT(ALLCAST_ERR_NO_MULTICAST, allcast_broadcast(comm, small, sizeof(small), 0, &c));
	SAYS("allcast doctor");
	OK(allcast_broadcast(comm, small, sizeof(small), 0, NULL));
	OK(allcast_close(comm));
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"killed", killed}, {"mismatch", mismatch}, {"aborted", aborted}, {"deadline", deadline},
	{"withdrawn", withdrawn}, {"cancelled", cancelled}, {"closed", closed}, {"absent", absent},
	{"no multicast", no_multicast},
};

int main(int argc, char **argv) {
	CHECK(argc == 2);
	comm = join_job();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (strcmp(cases[i].name, argv[1]) == 0) {
			cases[i].run();
			return passed();
		}
	}
	FAIL("no case %s", argv[1]);
}
