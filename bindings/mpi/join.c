/*
 * How communicators join. A communicator joins inside one of its blocking collectives, so all its members are there.
 *
 * A communicator of all ranks of MPI_COMM_WORLD joins the world's job first, if there is none yet. Others become a
 * subset of that job, or join a job of their own before it exists. Ranks find each other through MPI: each passes the
 * address that liballcast.so wants to store to MPI_Allgather, and looks up the others' in the result.
 *
 * liballcast.so blocks while it joins, and MPI must make progress meanwhile. A thread therefore makes the call, and the
 * thread of the program does everything that needs MPI.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core.h"

/* Jobs of this process besides the world's. Each has threads, sockets and multicast groups of its own. */
#define MAX_JOBS 4

/* The world's job. A thread claims it before it joins, because threads may join several communicators at once. */
static pthread_mutex_t world_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	allcast_comm native; /* 0 before it has joined */
	bool claimed, failed;
	int jobs;     /* number of other jobs */
	int64_t tags; /* number of subsets that this process has led */
	struct curve mpi_times[KINDS];
	int64_t threshold[KINDS];
	bool measured;
} world;

/* Length of a value in the store, which is about 100 bytes. */
#define MAX_VALUE 510
struct entry {
	unsigned char length[2];
	char value[MAX_VALUE];
};

/* One call of liballcast.so on a thread of its own. */
struct attempt {
	allcast_comm parent; /* of a subset; 0: join a job */
	int rank, size;
	const int *ranks; /* members of a subset, or numbers of the members in the job; NULL: their own */
	char tag[32];

	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool go, set, over; /* go: the threads of all members run */
	struct entry own;
	struct entry *table; /* NULL until all values are known */

	int code;
	char message[512];
	allcast_comm made;
};

static int store_set(void *user, const char *key, const void *value, size_t length) {
	struct attempt *a = user;
	(void)key;
	if (length > MAX_VALUE) {
		return 1;
	}
	pthread_mutex_lock(&a->lock);
	a->own.length[0] = (unsigned char)(length & 0xff);
	a->own.length[1] = (unsigned char)(length >> 8);
	memcpy(a->own.value, value, length);
	a->set = true;
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
	return 0;
}

static struct timespec in_ms(int64_t ms) {
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_nsec += (long)(ms % 1000) * 1000000;
	t.tv_sec += (time_t)(ms / 1000) + t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	return t;
}

/* Keys end in "/rank/N". */
static int store_get(void *user, const char *key, int64_t wait_ms, void **value, size_t *length) {
	struct attempt *a = user;
	const char *slash = strrchr(key, '/');
	int rank = slash == NULL ? -1 : atoi(slash + 1);
	if (rank < 0 || rank >= a->size) {
		return 2;
	}
	struct timespec limit = in_ms(wait_ms);
	pthread_mutex_lock(&a->lock);
	while (a->table == NULL && pthread_cond_timedwait(&a->changed, &a->lock, &limit) == 0) {
	}
	struct entry *e = a->table == NULL ? NULL : &a->table[rank];
	pthread_mutex_unlock(&a->lock);
	size_t n = e == NULL ? 0 : (size_t)(e->length[0] | e->length[1] << 8);
	if (n == 0) {
		return e == NULL ? 1 : 2; /* 2: that rank has failed before it had an address */
	}
	*value = malloc(n);
	if (*value == NULL) {
		return 3;
	}
	*length = n;
	memcpy(*value, e->value, n);
	return 0;
}

static int set_option(allcast_options o, const char *name, const char *value) {
	return native.options_set(o, name, value, strlen(value));
}

static int join_job(struct attempt *a) {
	allcast_options o;
	char rank[16], size[16];
	snprintf(rank, sizeof(rank), "%d", a->rank);
	snprintf(size, sizeof(size), "%d", a->size);
	int code = native.options_new(&o);
	if (code != ALLCAST_OK) {
		return code;
	}
	const char *timeout = getenv("ALLCAST_TIMEOUT");
	if ((code = set_option(o, "rank", rank)) == ALLCAST_OK && (code = set_option(o, "size", size)) == ALLCAST_OK) {
		/* MPI waits for a stopped process forever. A process that has died closes its connections. */
		if (timeout == NULL || timeout[0] == '\0') {
			code = set_option(o, "timeout", "100000h");
		}
	}
	if (code == ALLCAST_OK) {
		allcast_store store = {a, store_set, store_get};
		code = native.join(o, &store, &a->made);
	}
	if (code != ALLCAST_OK) {
		snprintf(a->message, sizeof(a->message), "%s", native.error_message());
	}
	native.options_free(o);
	return code;
}

static void *attempt_thread(void *argument) {
	struct attempt *a = argument;
	int code;
	pthread_mutex_lock(&a->lock);
	while (!a->go && !a->over) {
		pthread_cond_wait(&a->changed, &a->lock);
	}
	bool over = a->over;
	pthread_mutex_unlock(&a->lock);
	if (over) {
		return NULL;
	}
	if (a->parent == 0) {
		code = join_job(a);
	} else {
		code = native.subset(a->parent, a->ranks, (size_t)a->size, a->tag, -1, &a->made);
		snprintf(a->message, sizeof(a->message), "%s", native.error_message());
	}
	pthread_mutex_lock(&a->lock);
	a->code = code;
	a->over = true;
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
	return NULL;
}

/* Starts a thread on which no handler of the program runs. */
static int start_thread(pthread_t *thread, void *(*run)(void *), void *argument) {
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int code = pthread_create(thread, NULL, run, argument);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return code;
}

/* Waits until the thread has a value for the store, or has ended, while MPI makes progress. */
static void await_attempt(struct attempt *a, bool until_set) {
	pthread_mutex_lock(&a->lock);
	while (!a->over && !(until_set && a->set)) {
		struct timespec limit = in_ms(1);
		pthread_cond_timedwait(&a->changed, &a->lock, &limit);
		pthread_mutex_unlock(&a->lock);
		progress();
		pthread_mutex_lock(&a->lock);
	}
	pthread_mutex_unlock(&a->lock);
}

static bool multicast_works(allcast_comm comm, char *message, size_t length) {
	char *json;
	if (native.describe(comm, &json) != ALLCAST_OK) {
		snprintf(message, length, "%s", native.error_message());
		return false;
	}
	bool works = strstr(json, "\"multicast\":{\"works\":true") != NULL;
	if (!works) {
		const char *reason = strstr(json, "\"reason\":\"");
		int n = reason == NULL ? 0 : (int)strcspn(reason + 10, "\"");
		snprintf(message, length, "multicast does not work: %.*s", n, reason == NULL ? "" : reason + 10);
	}
	native.text_free(json);
	return works;
}

/* Runs an attempt on all members of a communicator, and agrees on the result. */
static bool run_attempt(struct comm *c, struct attempt *a) {
	pthread_t thread;
	struct entry *table = NULL;
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->changed, NULL);
	bool running = start_thread(&thread, attempt_thread, a) == 0;
	if (!running) {
		a->over = true;
		a->code = ALLCAST_ERR_OTHER;
		snprintf(a->message, sizeof(a->message), "cannot start a thread");
	}
	/* A thread would wait forever for one that does not run. */
	int runs = running, all_run = 0;
	if (PMPI_Allreduce(&runs, &all_run, 1, MPI_INT, MPI_MIN, c->mpi) != MPI_SUCCESS) {
		all_run = 0;
	}
	pthread_mutex_lock(&a->lock);
	if (all_run) {
		a->go = true;
	} else if (running) {
		a->over = true;
		a->code = ALLCAST_ERR_OTHER;
		snprintf(a->message, sizeof(a->message), "another rank cannot start a thread");
	}
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
	if (a->parent == 0) {
		await_attempt(a, true);
		table = calloc((size_t)c->size, sizeof(*table));
		if (table == NULL) {
			abort(); /* the other ranks wait in MPI_Allgather */
		}
		struct entry own = a->own, *gathered = calloc((size_t)c->size, sizeof(*gathered));
		if (gathered == NULL) {
			abort();
		}
		int code = PMPI_Allgather(&own, sizeof(own), MPI_BYTE, gathered, sizeof(own), MPI_BYTE, c->mpi);
		for (int i = 0; i < c->size && code == MPI_SUCCESS; i++) {
			table[a->ranks == NULL ? i : a->ranks[i]] = gathered[i];
		}
		free(gathered);
		pthread_mutex_lock(&a->lock);
		a->table = table;
		pthread_cond_broadcast(&a->changed);
		pthread_mutex_unlock(&a->lock);
	}
	if (running) {
		await_attempt(a, false);
		pthread_join(thread, NULL);
	}
	free(table);
	bool ok = a->code == ALLCAST_OK && multicast_works(a->made, a->message, sizeof(a->message));
	struct {
		int ok, rank;
	} mine = {ok, c->rank}, first = {0, 0};
	if (PMPI_Allreduce(&mine, &first, 1, MPI_2INT, MPI_MINLOC, c->mpi) != MPI_SUCCESS) {
		first.ok = 0;
	} else if (!first.ok) {
		PMPI_Bcast(a->message, sizeof(a->message), MPI_CHAR, first.rank, c->mpi);
		if (c->rank == 0) {
			warn("calls on a communicator of %d ranks pass through to MPI, because rank %d cannot use multicast: %s",
				c->size, first.rank, a->message);
		}
	}
	pthread_cond_destroy(&a->changed);
	pthread_mutex_destroy(&a->lock);
	return first.ok;
}

static void *close_thread(void *comm) {
	native.close((allcast_comm)(uintptr_t)comm);
	return NULL;
}

/* Leaves a job without waiting for its other ranks. */
static void leave(allcast_comm comm) {
	pthread_t thread;
	if (comm != 0 && start_thread(&thread, close_thread, (void *)(uintptr_t)comm) == 0) {
		pthread_detach(thread);
	}
}

static void pass_through(struct comm *c, enum reason why) {
	c->phase = PASSING;
	c->why = why;
}

/* Passes through on all members, and on every communicator that they join later. */
static void fail(struct comm *c) {
	pthread_mutex_lock(&world_lock);
	world.failed = true;
	pthread_mutex_unlock(&world_lock);
	pass_through(c, NO_MULTICAST);
}

void count_free_job(void) {
	pthread_mutex_lock(&world_lock);
	world.jobs--;
	pthread_mutex_unlock(&world_lock);
}

/* Joins a job of the communicator's members, which have these numbers in the job. */
static allcast_comm join_members(struct comm *c, int rank, const int *ranks) {
	struct attempt a = {.rank = rank, .size = c->size, .ranks = ranks};
	if (!run_attempt(c, &a)) {
		leave(a.made);
		return 0;
	}
	return a.made;
}

static bool make_subset(struct comm *c, int64_t tag) {
	struct attempt a = {.parent = world.native, .rank = c->rank, .size = c->size, .ranks = c->members};
	snprintf(a.tag, sizeof(a.tag), "mpi %lld", (long long)tag);
	if (!run_attempt(c, &a)) {
		if (a.made != 0) {
			native.close(a.made);
		}
		return false;
	}
	c->native = a.made;
	return true;
}

/* ---- Measuring ---- */

/* Limits of the sizes to measure: total bytes, seconds of one operation, and seconds of all. */
#define FIRST_SIZE (16 << 10)
#define ONE_LIMIT 0.05
#define ALL_LIMIT 0.3
#define ROUNDS 3

/* Runs one operation over MPI or over Allcast, and returns its time. *failed is set if it fails. */
static double time_one(struct comm *c, enum kind kind, char *buf, int64_t bytes, bool over_mpi, bool *failed) {
	struct transfer t = {.comm = c, .kind = KINDS, .bytes = bytes, .type = MPI_DATATYPE_NULL};
	int each = (int)(bytes / c->size), code = PMPI_Barrier(c->mpi);
	*failed = *failed || code != MPI_SUCCESS;
	double begin = PMPI_Wtime();
	if (over_mpi) {
		switch (kind) {
		case BCAST:
			code = PMPI_Bcast(buf, (int)bytes, MPI_BYTE, 0, c->mpi);
			break;
		case ALLGATHER:
			code = PMPI_Allgather(MPI_IN_PLACE, 0, MPI_BYTE, buf, each, MPI_BYTE, c->mpi);
			break;
		default:
			code = PMPI_Barrier(c->mpi);
		}
	} else {
		code = kind == BCAST ? start_bcast(&t, buf, bytes, MPI_BYTE, 0)
			: kind == ALLGATHER
			? start_allgather(&t, MPI_IN_PLACE, 0, MPI_BYTE, buf, each, MPI_BYTE)
			: start_barrier(&t);
		if (code == MPI_SUCCESS) {
			code = await(&t);
		}
	}
	*failed = *failed || code != MPI_SUCCESS;
	return PMPI_Wtime() - begin;
}

/* Measures one kind of call. It returns false on all ranks if an operation fails on one. */
static bool measure_kind(struct comm *c, enum kind kind, char *buf) {
	int64_t threshold = INT64_MAX;
	struct curve *curve = &c->mpi_times[kind];
	double spent = 0, longest = 0;
	bool failed = false;
	for (int k = 0; k < (kind == BARRIER ? 1 : MAX_SAMPLES) && longest < ONE_LIMIT && spent < ALL_LIMIT; k++) {
		int64_t bytes = kind == BARRIER ? 0 : (int64_t)FIRST_SIZE << (2 * k);
		double best[2] = {1e9, 1e9};
		for (int round = 0; round < 2 * ROUNDS; round++) {
			bool over_mpi = round % 2 == 0;
			/* The table of statistics needs only the times of MPI. */
			if (over_mpi || process.measures) {
				double seconds = time_one(c, kind, buf, bytes, over_mpi, &failed);
				spent += seconds;
				best[round % 2] = seconds < best[round % 2] ? seconds : best[round % 2];
			}
		}
		/* All ranks use the values of the slowest one: of MPI, of Allcast, of all, and whether one has failed. */
		double local[4] = {best[0], best[1], spent, failed}, slowest[4] = {0};
		if (PMPI_Allreduce(local, slowest, 4, MPI_DOUBLE, MPI_MAX, c->mpi) != MPI_SUCCESS || slowest[3] != 0) {
			return false;
		}
		spent = slowest[2];
		longest = !process.measures || slowest[0] > slowest[1] ? slowest[0] : slowest[1];
		curve->bytes[curve->n] = bytes;
		curve->seconds[curve->n++] = slowest[0];
		if (slowest[1] >= slowest[0]) {
			threshold = INT64_MAX;
		} else if (threshold == INT64_MAX) {
			threshold = bytes;
		}
	}
	if (process.measures) {
		c->threshold[kind] = threshold;
	}
	return true;
}

/* Finds the sizes from which on multicast is faster than MPI. */
static bool measure(struct comm *c) {
	static const enum kind kinds[] = {BCAST, ALLGATHER, BARRIER};
	char *buf = calloc(1, (size_t)FIRST_SIZE << (2 * MAX_SAMPLES));
	int64_t has = buf != NULL, all_have = 0;
	bool ok = PMPI_Allreduce(&has, &all_have, 1, MPI_INT64_T, MPI_MIN, c->mpi) == MPI_SUCCESS && all_have;
	for (size_t i = 0; ok && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		ok = measure_kind(c, kinds[i], buf);
	}
	free(buf);
	c->threshold[ALLGATHERV] = c->threshold[IALLGATHER] = c->threshold[IALLGATHERV] = c->threshold[ALLGATHER];
	c->threshold[IBCAST] = c->threshold[BCAST];
	c->mpi_times[ALLGATHERV] = c->mpi_times[IALLGATHER] = c->mpi_times[IALLGATHERV] = c->mpi_times[ALLGATHER];
	c->mpi_times[IBCAST] = c->mpi_times[BCAST];
	return ok;
}

/* Sets the thresholds of a communicator that has joined. */
static void set_thresholds(struct comm *c, bool world_measured) {
	for (int k = 0; k < KINDS; k++) {
		c->threshold[k] = process.threshold;
		c->below[k] = SMALL;
	}
	if (!process.measures && !process.stats) {
		return;
	}
	if (c->whole_job && !c->owns_job && world_measured) {
		pthread_mutex_lock(&world_lock);
		memcpy(c->mpi_times, world.mpi_times, sizeof(c->mpi_times));
		memcpy(c->threshold, world.threshold, sizeof(c->threshold));
		pthread_mutex_unlock(&world_lock);
	} else if (!measure(c)) {
		if (c->rank == 0) {
			warn("calls on a communicator of %d ranks pass through to MPI, because a measurement has failed", c->size);
		}
		fail(c);
		return;
	}
	if (c->mpi == MPI_COMM_WORLD) {
		pthread_mutex_lock(&world_lock);
		memcpy(world.mpi_times, c->mpi_times, sizeof(c->mpi_times));
		memcpy(world.threshold, c->threshold, sizeof(c->threshold));
		world.measured = true;
		pthread_mutex_unlock(&world_lock);
	}
	for (int k = 0; k < KINDS; k++) {
		c->below[k] = c->threshold[k] == INT64_MAX ? SLOWER : SMALL;
	}
}

/* What the members of a communicator agree on before they join. Each number is the maximum over all members. */
struct agreement {
	int64_t no_world;  /* a member has not joined the world's job */
	int64_t has_world; /* a member has */
	int64_t busy;      /* another thread of a member joins the world's job */
	int64_t no_room;   /* a member has too many jobs */
	int64_t failed;    /* a member has failed to join before */
	int64_t unmeasured; /* MPI_COMM_WORLD has not measured on a member */
	int64_t tag;       /* of rank 0 */
};

/* Returns false if MPI fails. */
static bool agree(struct comm *c, bool whole, bool *claimed, struct agreement *all) {
	struct agreement mine = {.tag = -1};
	pthread_mutex_lock(&world_lock);
	*claimed = whole && !world.claimed && world.native == 0;
	world.claimed = world.claimed || *claimed;
	mine.no_world = world.native == 0;
	mine.has_world = world.native != 0;
	mine.busy = whole && world.native == 0 && !*claimed;
	mine.no_room = world.jobs >= MAX_JOBS;
	mine.failed = world.failed;
	mine.unmeasured = !world.measured;
	if (c->rank == 0) {
		mine.tag = world.tags++;
	}
	pthread_mutex_unlock(&world_lock);
	memset(all, 0, sizeof(*all));
	return PMPI_Allreduce(&mine, all, sizeof(mine) / sizeof(int64_t), MPI_INT64_T, MPI_MAX, c->mpi) == MPI_SUCCESS;
}

/* Joins the world's job, on all ranks. */
static bool join_world(struct comm *c) {
	allcast_comm made = join_members(c, process.rank, c->members);
	pthread_mutex_lock(&world_lock);
	world.native = made;
	pthread_mutex_unlock(&world_lock);
	return made != 0;
}

void join(struct comm *c) {
	bool whole = c->size == process.size, claimed;
	struct agreement all;
	bool joined = false;
	if (!agree(c, whole, &claimed, &all) || all.failed) {
		pass_through(c, NO_MULTICAST);
	} else if (whole && all.no_world) {
		/* If threads of some ranks join another communicator right now, the next call tries again. */
		if (!all.has_world && !all.busy) {
			joined = join_world(c);
			if (!joined) {
				fail(c);
			}
		}
	} else if (all.no_world) {
		if (all.no_room) {
			pass_through(c, TOO_MANY);
		} else if ((c->native = join_members(c, c->rank, NULL)) != 0) {
			pthread_mutex_lock(&world_lock);
			world.jobs++;
			pthread_mutex_unlock(&world_lock);
			c->owns_job = c->whole_job = true;
			c->phase = JOINED;
		} else {
			fail(c);
		}
	} else {
		joined = true;
	}
	if (claimed) {
		pthread_mutex_lock(&world_lock);
		world.claimed = false;
		pthread_mutex_unlock(&world_lock);
	}
	if (joined) {
		c->whole_job = whole;
		if (c->mpi == MPI_COMM_WORLD) {
			c->native = world.native;
			c->phase = JOINED;
		} else if (make_subset(c, all.tag)) {
			c->phase = JOINED;
		} else {
			fail(c);
		}
	}
	if (c->phase == JOINED) {
		set_thresholds(c, !all.unmeasured);
	}
}

/* Time that MPI_Finalize waits for liballcast.so to leave. All ranks are there already. */
#define LEAVE_SECONDS 10

void close_jobs(void) {
	pthread_t thread;
	struct timespec limit = in_ms(LEAVE_SECONDS * 1000);
	if (world.native != 0 && start_thread(&thread, close_thread, (void *)(uintptr_t)world.native) == 0 &&
		pthread_timedjoin_np(thread, NULL, &limit) != 0) {
		pthread_detach(thread);
	}
	world.native = 0;
}
