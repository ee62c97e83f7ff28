/* States of communicators, in an attribute. MPI uses handles again, so a table by handle would confuse them. */
#include <pthread.h>
#include <stdlib.h>

#include "core.h"

/* The state of MPI_COMM_WORLD, whose handle is never used again. */
static struct comm *world;

void retain(struct comm *c) { atomic_fetch_add(&c->refs, 1); }

static void *close_later(void *native_comm) {
	native.close((allcast_comm)(uintptr_t)native_comm);
	return NULL;
}

void release(struct comm *c) {
	if (atomic_fetch_sub(&c->refs, 1) > 1) {
		return;
	}
	if (c->native != 0 && atomic_load(&process.active)) {
		pthread_t thread;
		/* Leaving a job waits for its other ranks, which need not be here. */
		if (!c->owns_job) {
			native.close(c->native);
		} else {
			count_free_job();
			if (pthread_create(&thread, NULL, close_later, (void *)(uintptr_t)c->native) == 0) {
				pthread_detach(thread);
			}
		}
	}
	free(c->members);
	free(c);
}

/* Runs when the program frees a communicator. */
static int on_free(MPI_Comm comm, int keyval, void *value, void *extra) {
	(void)comm, (void)keyval, (void)extra;
	struct comm *c = value;
	c->mpi = MPI_COMM_NULL;
	release(c);
	return MPI_SUCCESS;
}

int make_keyval(void) { return PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_free, &process.keyval, NULL); }

void forget_world(void) { world = NULL; }

/* Fills in the members. It returns false if one of them is not in MPI_COMM_WORLD. */
static bool find_members(struct comm *c) {
	MPI_Group group;
	bool inside = true;
	int *ranks = malloc((size_t)c->size * sizeof(int));
	c->members = malloc((size_t)c->size * sizeof(int));
	if (ranks == NULL || c->members == NULL || PMPI_Comm_group(c->mpi, &group) != MPI_SUCCESS) {
		free(ranks);
		return false;
	}
	for (int i = 0; i < c->size; i++) {
		ranks[i] = i;
	}
	PMPI_Group_translate_ranks(group, c->size, ranks, process.world, c->members);
	for (int i = 0; i < c->size; i++) {
		inside = inside && c->members[i] != MPI_UNDEFINED;
	}
	PMPI_Group_free(&group);
	free(ranks);
	return inside;
}

static void pass_through(struct comm *c, enum reason why) {
	c->phase = PASSING;
	c->why = why;
}

/* Returns the state of a communicator, or NULL if it cannot have one. */
struct comm *comm_of(MPI_Comm comm) {
	struct comm *c = NULL;
	int found = 0, inter = 0;
	if (comm == MPI_COMM_WORLD && world != NULL) {
		return world;
	}
	if (PMPI_Comm_get_attr(comm, process.keyval, &c, &found) != MPI_SUCCESS) {
		return NULL;
	}
	if (found) {
		return c;
	}
	c = calloc(1, sizeof(*c));
	if (c == NULL) {
		return NULL;
	}
	atomic_init(&c->refs, 1);
	c->mpi = comm;
	PMPI_Comm_test_inter(comm, &inter);
	PMPI_Comm_rank(comm, &c->rank);
	PMPI_Comm_size(comm, &c->size);
	if (inter) {
		pass_through(c, INTER);
	} else if (c->size == 1) {
		pass_through(c, ONE_RANK);
	} else if (!find_members(c)) {
		pass_through(c, BEYOND_WORLD);
	}
	if (PMPI_Comm_set_attr(comm, process.keyval, c) != MPI_SUCCESS) {
		free(c->members);
		free(c);
		return NULL;
	}
	if (comm == MPI_COMM_WORLD) {
		world = c;
	}
	return c;
}
