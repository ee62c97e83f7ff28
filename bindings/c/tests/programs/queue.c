/* Completion queues: in an event loop, with waiting threads, and when they are freed. */
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "test.h"

enum { calls = 200, batch = 7, bytes = 5000 };

static bool readable(int fd) {
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int n = poll(&p, 1, 0);
	CHECK(n >= 0);
	return n == 1 && (p.revents & POLLIN) != 0;
}

/* An event loop that keeps several allgathers in flight, and sees one completion of each. */
static void event_loop(allcast_comm comm) {
	allcast_queue queue;
	int fd, again;
	OK(allcast_queue_new(&queue));
	OK(allcast_queue_fd(queue, &fd));
	OK(allcast_queue_fd(queue, &again));
	CHECK(fd == again && !readable(fd));
	int loop = epoll_create1(0);
	struct epoll_event event = {.events = EPOLLIN};
	CHECK(loop >= 0 && epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event) == 0);

	unsigned char *in[calls], *out[calls];
	allcast_request requests[calls];
	bool seen[calls] = {false};
	int started = 0, ended = 0;
	while (ended < calls) {
		for (; started < calls && started - ended < batch; started++) {
			in[started] = need(malloc(bytes));
			out[started] = need(malloc((size_t)size * bytes));
			fill(in[started], started, rank, bytes);
			allcast_call c = ALLCAST_CALL_INIT;
			c.queue = queue;
			c.user = (uint64_t)started;
			OK(allcast_start_allgather(comm, in[started], out[started], bytes, &c, &requests[started]));
		}
		CHECK(epoll_wait(loop, &event, 1, 60000) == 1);
		allcast_completion list[3];
		size_t n;
		OK(allcast_queue_next(queue, list, 3, 0, &n));
		CHECK(n >= 1 && n <= 3);
		for (size_t i = 0; i < n; i++) {
			int k = (int)list[i].user;
			CHECK(k >= 0 && k < started && !seen[k] && list[i].error == ALLCAST_OK && list[i].request == requests[k]);
			seen[k] = true;
			OK(allcast_wait(list[i].request, 0, NULL));
			for (int r = 0; r < size; r++) {
				CHECK(holds(out[k] + (size_t)r * bytes, k, r, bytes));
			}
			free(in[k]);
			free(out[k]);
			ended++;
		}
	}
	CHECK(!readable(fd));
	size_t n = 9;
	allcast_completion none;
	EXPECT(ALLCAST_ERR_TIMEOUT, allcast_queue_next(queue, &none, 1, 0, &n));
	CHECK(n == 0);
	EXPECT(ALLCAST_ERR_TIMEOUT, allcast_queue_next(queue, &none, 1, 1, &n));
	EXPECT(ALLCAST_ERR_INVALID, allcast_queue_next(queue, &none, 0, 0, &n));
	close(loop);
	OK(allcast_queue_free(queue));
	EXPECT(ALLCAST_ERR_INVALID, allcast_queue_next(queue, &none, 1, 0, &n));
}

/* The descriptor is readable exactly while the queue has completions, also if they came before the descriptor. */
static void levels(allcast_comm comm) {
	allcast_queue queue;
	allcast_request requests[2];
	int fd;
	OK(allcast_queue_new(&queue));
	allcast_call c = ALLCAST_CALL_INIT;
	c.queue = queue;
	for (int i = 0; i < 2; i++) {
		OK(allcast_start_barrier(comm, &c, &requests[i]));
	}
	for (int i = 0; i < 2; i++) {
		OK(allcast_wait(requests[i], -1, NULL)); /* releases the requests: their completions have no handle */
	}
	allcast_completion one;
	size_t n;
	OK(allcast_queue_next(queue, &one, 1, 60000, &n));
	CHECK(n == 1 && one.request == 0 && one.error == ALLCAST_OK);
	OK(allcast_queue_fd(queue, &fd));
	struct pollfd p = {.fd = fd, .events = POLLIN};
	CHECK(poll(&p, 1, 60000) == 1 && readable(fd));
	OK(allcast_queue_next(queue, &one, 1, 60000, &n));
	CHECK(!readable(fd));
	OK(allcast_queue_free(queue));
}

/* A call that fails completes with its error; a call that does not start completes never. */
static void failures(allcast_comm comm) {
	allcast_queue queue;
	allcast_request request;
	char b[8];
	OK(allcast_queue_new(&queue));
	allcast_call c = ALLCAST_CALL_INIT;
	c.queue = queue;
	c.user = 5;
	EXPECT(ALLCAST_ERR_INVALID, allcast_start_broadcast(comm, NULL, 1, 0, &c, &request));
	OK(allcast_start_recv(comm, b, sizeof(b), rank == 0 ? 1 : 0, 99, &c, &request));
	EXPECT(ALLCAST_ERR_IN_USE, allcast_queue_free(queue));
	SAYS("1 operation");
	EXPECT(ALLCAST_ERR_TIMEOUT, allcast_wait(request, 0, NULL));
	EXPECT(ALLCAST_ERR_TIMEOUT, allcast_wait(request, 1, NULL));
	OK(allcast_cancel(request));
	allcast_completion one;
	size_t n;
	OK(allcast_queue_next(queue, &one, 1, -1, &n));
	CHECK(n == 1 && one.error == ALLCAST_ERR_WITHDRAWN && one.user == 5 && one.request == request);
	EXPECT(ALLCAST_ERR_WITHDRAWN, allcast_wait(request, -1, NULL));
	OK(allcast_queue_free(queue));
}

/* A queue may be freed as soon as its requests were waited for, also if they failed. */
static void free_after_wait(allcast_comm comm) {
	for (int i = 0; i < 50; i++) {
		allcast_comm sub;
		allcast_queue queue;
		allcast_request request;
		char b[8];
		OK(allcast_split(comm, 0, 0, -1, &sub));
		OK(allcast_queue_new(&queue));
		allcast_call c = ALLCAST_CALL_INIT;
		c.queue = queue;
		OK(allcast_start_recv(sub, b, sizeof(b), rank == 0 ? 1 : 0, 1, &c, &request));
		OK(allcast_abort(sub));
		EXPECT(ALLCAST_ERR_ABORTED, allcast_wait(request, -1, NULL));
		OK(allcast_queue_free(queue));
		OK(allcast_close(sub));
	}
}

static allcast_queue shared;

static void *taker(void *count) {
	allcast_completion list[2];
	size_t n;
	int code;
	while ((code = allcast_queue_next(shared, list, 2, -1, &n)) == ALLCAST_OK) {
		for (size_t i = 0; i < n; i++) {
			OK(allcast_wait(list[i].request, 0, NULL));
			__atomic_add_fetch((int *)count, 1, __ATOMIC_SEQ_CST);
		}
	}
	CHECK(code == ALLCAST_ERR_CLOSED || code == ALLCAST_ERR_INVALID); /* freed while it waits, or just before */
	return NULL;
}

/* Several threads take completions, until another one frees the queue. */
static void waiting_threads(allcast_comm comm) {
	pthread_t takers[3];
	int count = 0;
	OK(allcast_queue_new(&shared));
	for (int i = 0; i < 3; i++) {
		CHECK(pthread_create(&takers[i], NULL, taker, &count) == 0);
	}
	allcast_call c = ALLCAST_CALL_INIT;
	c.queue = shared;
	for (int i = 0; i < calls; i++) {
		allcast_request request;
		OK(allcast_start_barrier(comm, &c, &request));
	}
	while (__atomic_load_n(&count, __ATOMIC_SEQ_CST) < calls) {
		usleep(1000);
	}
	OK(allcast_queue_free(shared));
	for (int i = 0; i < 3; i++) {
		CHECK(pthread_join(takers[i], NULL) == 0);
	}
	CHECK(count == calls);
}

int main(void) {
	allcast_comm comm = join_job();
	event_loop(comm);
	levels(comm);
	failures(comm);
	free_after_wait(comm);
	waiting_threads(comm);
	OK(allcast_close(comm));
	return passed();
}
