/*
 * Non-blocking operations as generalized requests of MPI.
 *
 * Allcast moves their data in the background. A generalized request ends when somebody calls MPI_Grequest_complete,
 * which no thread of the library may do. The calls that wait for requests or test them therefore do it first, on the
 * thread of the program, and then leave the rest to MPI.
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "core.h"

struct pending {
	MPI_Request request;
	struct transfer transfer;
	struct pending *next;
};

/* Unfinished operations by their request. A handle is used again only after MPI_Grequest_complete, and then it is not
 * here any more. */
#define BUCKETS 256
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pending *buckets[BUCKETS];
static atomic_int unfinished;

static struct pending **bucket_of(MPI_Request request) {
	uint64_t h = (uint64_t)(uintptr_t)request * 0x9e3779b97f4a7c15u;
	return &buckets[h >> 56];
}

static int query(void *extra, MPI_Status *status) {
	(void)extra;
	PMPI_Status_set_elements(status, MPI_BYTE, 0);
	PMPI_Status_set_cancelled(status, 0);
	status->MPI_SOURCE = status->MPI_TAG = MPI_UNDEFINED;
	return MPI_SUCCESS;
}

static int forget(void *extra) {
	(void)extra;
	return MPI_SUCCESS;
}

/* MPI does not allow to cancel collectives. */
static int cancel(void *extra, int complete) {
	(void)extra, (void)complete;
	return MPI_SUCCESS;
}

int add_request(struct transfer *t, MPI_Request *request) {
	struct pending *p = malloc(sizeof(*p));
	if (p == NULL || PMPI_Grequest_start(query, forget, cancel, NULL, &p->request) != MPI_SUCCESS) {
		free(p);
		*request = MPI_REQUEST_NULL;
		return await(t); /* a request that has ended is correct too */
	}
	p->transfer = *t;
	if (t->blocks == &t->single) {
		p->transfer.blocks = &p->transfer.single;
	}
	keep_types(&p->transfer);
	retain(t->comm);
	pthread_mutex_lock(&lock);
	struct pending **bucket = bucket_of(p->request);
	p->next = *bucket;
	*bucket = p;
	pthread_mutex_unlock(&lock);
	atomic_fetch_add(&unfinished, 1);
	*request = p->request;
	return MPI_SUCCESS;
}

static struct pending *find(MPI_Request request) {
	if (request == MPI_REQUEST_NULL) {
		return NULL;
	}
	pthread_mutex_lock(&lock);
	struct pending *p = *bucket_of(request);
	while (p != NULL && p->request != request) {
		p = p->next;
	}
	pthread_mutex_unlock(&lock);
	return p;
}

/* Polls an operation for at most wait_ms. If it has ended, the function completes its request and returns true. */
static bool poll_request(struct pending *p, int64_t wait_ms, int *code) {
	int ended;
	if (!poll_transfer(&p->transfer, wait_ms, &ended)) {
		return false;
	}
	pthread_mutex_lock(&lock);
	struct pending **at = bucket_of(p->request);
	while (*at != p) {
		at = &(*at)->next;
	}
	*at = p->next;
	pthread_mutex_unlock(&lock);
	atomic_fetch_sub(&unfinished, 1);
	struct transfer t = p->transfer;
	PMPI_Grequest_complete(p->request);
	free(p);
	/* The error handler of the program need not return. */
	if (t.failure[0] != '\0') {
		ended = raise_failure(&t);
	}
	release(t.comm);
	if (ended != MPI_SUCCESS) {
		*code = ended;
	}
	return true;
}

/* Whether a call has to look for requests of this library. */
static bool none(void) { return atomic_load_explicit(&unfinished, memory_order_relaxed) == 0; }

/* Waits until all operations among the requests have ended. */
static int finish_all(int n, const MPI_Request *requests) {
	int code = MPI_SUCCESS;
	for (int i = 0; i < n && !none(); i++) {
		struct pending *p = find(requests[i]);
		while (p != NULL && !poll_request(p, 1, &code)) {
			progress();
		}
	}
	return code;
}

/* Completes the requests of operations that have ended. *waiting is one that has not. */
static int finish_ended(int n, const MPI_Request *requests, struct pending **waiting) {
	int code = MPI_SUCCESS;
	*waiting = NULL;
	for (int i = 0; i < n && !none(); i++) {
		struct pending *p = find(requests[i]);
		if (p != NULL && !poll_request(p, 0, &code)) {
			*waiting = p;
		}
	}
	/* Programs that test in a loop would take the processor from the threads that receive. */
	if (*waiting != NULL) {
		sched_yield();
	}
	return code;
}

static int either(int code, int other) { return code != MPI_SUCCESS ? code : other; }

int core_MPI_Wait(MPI_Request *request, MPI_Status *status) {
	int code = none() ? MPI_SUCCESS : finish_all(1, request);
	return either(code, PMPI_Wait(request, status));
}

int core_MPI_Waitall(int n, MPI_Request requests[], MPI_Status *statuses) {
	int code = none() ? MPI_SUCCESS : finish_all(n, requests);
	return either(code, PMPI_Waitall(n, requests, statuses));
}

int core_MPI_Test(MPI_Request *request, int *flag, MPI_Status *status) {
	struct pending *p;
	int code = none() ? MPI_SUCCESS : finish_ended(1, request, &p);
	return either(code, PMPI_Test(request, flag, status));
}

int core_MPI_Testall(int n, MPI_Request requests[], int *flag, MPI_Status *statuses) {
	struct pending *p;
	int code = none() ? MPI_SUCCESS : finish_ended(n, requests, &p);
	return either(code, PMPI_Testall(n, requests, flag, statuses));
}

int core_MPI_Testany(int n, MPI_Request requests[], int *index, int *flag, MPI_Status *status) {
	struct pending *p;
	int code = none() ? MPI_SUCCESS : finish_ended(n, requests, &p);
	return either(code, PMPI_Testany(n, requests, index, flag, status));
}

int core_MPI_Testsome(int n, MPI_Request requests[], int *done, int indices[], MPI_Status *statuses) {
	struct pending *p;
	int code = none() ? MPI_SUCCESS : finish_ended(n, requests, &p);
	return either(code, PMPI_Testsome(n, requests, done, indices, statuses));
}

int core_MPI_Request_get_status(MPI_Request request, int *flag, MPI_Status *status) {
	struct pending *p;
	int code = none() ? MPI_SUCCESS : finish_ended(1, &request, &p);
	return either(code, PMPI_Request_get_status(request, flag, status));
}

/* MPI_Waitany and MPI_Waitsome test in turns, as long as an operation of this library is among the requests. */
int core_MPI_Waitany(int n, MPI_Request requests[], int *index, MPI_Status *status) {
	int code = MPI_SUCCESS;
	while (!none()) {
		struct pending *p;
		int flag = 0, unused = MPI_SUCCESS;
		code = either(code, finish_ended(n, requests, &p));
		if (p == NULL) {
			break;
		}
		int tested = PMPI_Testany(n, requests, index, &flag, status);
		if (flag || tested != MPI_SUCCESS) {
			return either(code, tested);
		}
		poll_request(p, 1, &unused);
		code = either(code, unused);
	}
	return either(code, PMPI_Waitany(n, requests, index, status));
}

int core_MPI_Waitsome(int n, MPI_Request requests[], int *done, int indices[], MPI_Status *statuses) {
	int code = MPI_SUCCESS;
	while (!none()) {
		struct pending *p;
		int unused = MPI_SUCCESS;
		code = either(code, finish_ended(n, requests, &p));
		if (p == NULL) {
			break;
		}
		*done = 0;
		int tested = PMPI_Testsome(n, requests, done, indices, statuses);
		if (*done != 0 || tested != MPI_SUCCESS) {
			return either(code, tested);
		}
		poll_request(p, 1, &unused);
		code = either(code, unused);
	}
	return either(code, PMPI_Waitsome(n, requests, done, indices, statuses));
}

/* ---- For wrappers that leave the call itself to MPI ---- */

int core_await_all(int n, const MPI_Request *requests) { return none() ? MPI_SUCCESS : finish_all(n, requests); }

int core_test(int n, const MPI_Request *requests) {
	struct pending *p;
	return none() ? MPI_SUCCESS : finish_ended(n, requests, &p);
}
