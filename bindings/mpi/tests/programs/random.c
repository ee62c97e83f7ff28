/*
 * A random program: mixed collectives on several communicators, with random datatypes, in place or not, blocking or
 * not. Every call is made twice, through MPI_ and through PMPI_, and both results are compared byte by byte, with the
 * bytes between elements. Arguments: seed, number of calls, and most bytes per rank.
 */
#include "test.h"

/* Two sources of numbers: common is the same on all ranks, own differs. */
static uint64_t common, own;

static uint64_t next(uint64_t *state) {
	uint64_t x = (*state += 0x9e3779b97f4a7c15u);
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static int upto(uint64_t *state, int n) { return (int)(next(state) % (uint64_t)n); }

/* ---- Communicators ---- */

enum { MAX_COMMS = 5 };

static struct {
	MPI_Comm comm; /* MPI_COMM_NULL if this rank is not a member */
	int rank, size;
} comms[MAX_COMMS];

static void set_comm(int i, MPI_Comm comm) {
	comms[i].comm = comm;
	if (comm != MPI_COMM_NULL) {
		OK(MPI_Comm_rank(comm, &comms[i].rank));
		OK(MPI_Comm_size(comm, &comms[i].size));
	}
}

/* Replaces a communicator other than the first. */
static void renew_comm(int i) {
	MPI_Comm made = MPI_COMM_NULL;
	int how = upto(&common, 4), colors = 1 + upto(&common, 3), reversed = upto(&common, 2);
	if (comms[i].comm != MPI_COMM_NULL) {
		OK(MPI_Comm_free(&comms[i].comm));
	}
	if (how == 0) {
		OK(MPI_Comm_dup(MPI_COMM_WORLD, &made));
	} else if (how == 1) {
		MPI_Group world, part;
		int range[1][3] = {{size - 1, colors < size ? colors : 0, -1}};
		OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
		OK(MPI_Group_range_incl(world, 1, range, &part));
		OK(MPI_Comm_create(MPI_COMM_WORLD, part, &made));
		OK(MPI_Group_free(&part));
		OK(MPI_Group_free(&world));
	} else {
		OK(MPI_Comm_split(MPI_COMM_WORLD, rank % colors, reversed ? -rank : rank, &made));
	}
	set_comm(i, made);
}

/* ---- Datatypes ---- */

/* Makes a type of n bytes in the type signature. Its layout is this rank's own choice. */
static MPI_Datatype make_type(int n) {
	MPI_Datatype type, inner;
	int half = n / 2;
	switch (upto(&own, n < 2 ? 3 : 7)) {
	case 0:
		OK(MPI_Type_contiguous(n, MPI_BYTE, &type));
		break;
	case 1:
		OK(MPI_Type_contiguous(n, MPI_BYTE, &inner));
		OK(MPI_Type_dup(inner, &type));
		OK(MPI_Type_free(&inner));
		break;
	case 2: /* with a gap after each element */
		OK(MPI_Type_contiguous(n, MPI_BYTE, &inner));
		OK(MPI_Type_create_resized(inner, 0, n + upto(&own, 9), &type));
		OK(MPI_Type_free(&inner));
		break;
	case 3: /* both halves exchanged, without a gap */
		OK(MPI_Type_indexed(2, (int[]){half, n - half}, (int[]){n - half, 0}, MPI_BYTE, &type));
		break;
	case 4: {
		int pieces = n % 2 == 0 ? 2 : 1;
		OK(MPI_Type_vector(pieces, n / pieces, n / pieces + 3, MPI_BYTE, &type));
		break;
	}
	case 5: { /* with data before the buffer's address */
		MPI_Aint at[2] = {-(MPI_Aint)half, 5};
		OK(MPI_Type_create_hindexed(2, (int[]){half, n - half}, at, MPI_BYTE, &type));
		break;
	}
	default: {
		MPI_Aint at[2] = {2, half + 7};
		MPI_Datatype types[2] = {MPI_CHAR, MPI_BYTE};
		OK(MPI_Type_create_struct(2, (int[]){half, n - half}, at, types, &type));
	}
	}
	OK(MPI_Type_commit(&type));
	return type;
}

/* A buffer for count elements, in two copies with the same bytes. */
struct buffer {
	MPI_Datatype type;
	int count;
	MPI_Aint lb, extent;
	size_t bytes;
	char *memory[2];
	char *at[2];     /* address for MPI */
};

static struct buffer make_buffer(MPI_Datatype type, int elements) {
	struct buffer b = {.type = type, .count = elements};
	MPI_Aint true_lb, true_extent;
	OK(MPI_Type_get_extent(type, &b.lb, &b.extent));
	OK(MPI_Type_get_true_extent(type, &true_lb, &true_extent));
	size_t span = (size_t)(elements > 0 ? (elements - 1) * b.extent : 0) + (size_t)true_extent;
	b.bytes = span + 64;
	for (int i = 0; i < 2; i++) {
		b.memory[i] = need(b.bytes);
		b.at[i] = b.memory[i] + 16 - true_lb;
	}
	for (size_t i = 0; i < b.bytes; i++) {
		b.memory[0][i] = b.memory[1][i] = (char)next(&own);
	}
	return b;
}

/* Compares both copies, and frees them. */
static void check_buffer(struct buffer *b, int call, const char *what) {
	for (size_t i = 0; i < b->bytes; i++) {
		if (b->memory[0][i] != b->memory[1][i]) {
			FAIL("call %d, %s: byte %zu of %zu differs", call, what, i, b->bytes);
		}
	}
	free(b->memory[0]);
	free(b->memory[1]);
	OK(MPI_Type_free(&b->type));
}

/* ---- Calls ---- */

enum { MAX_PENDING = 6 };

/* A non-blocking call that has been started. */
static struct pending {
	struct buffer send, recv;
	bool has_send;
	int *counts, *displs;
	int number;
	const char *name;
	MPI_Request requests[2]; /* of MPI_ and PMPI_ */
} pendings[MAX_PENDING];
static int n_pending;

static void end_call(struct pending *p) {
	check_buffer(&p->recv, p->number, p->name);
	if (p->has_send) {
		check_buffer(&p->send, p->number, "send buffer");
	}
	free(p->counts);
	free(p->displs);
}

/* Waits for all calls, in one of several ways, mixed with messages to itself. */
static void end_pending(void) {
	if (n_pending == 0) {
		return;
	}
	MPI_Request all[MAX_PENDING + 2];
	int sent = rank, received = -1, n = 0;
	for (int i = 0; i < n_pending; i++) {
		all[n++] = pendings[i].requests[0];
	}
	OK(MPI_Irecv(&received, 1, MPI_INT, 0, 7, MPI_COMM_SELF, &all[n++]));
	OK(MPI_Isend(&sent, 1, MPI_INT, 0, 7, MPI_COMM_SELF, &all[n++]));
	MPI_Status statuses[MAX_PENDING + 2];
	int indices[MAX_PENDING + 2], flag = 0, done = 0, index;
	switch (upto(&own, 7)) {
	case 0:
		OK(MPI_Waitall(n, all, MPI_STATUSES_IGNORE));
		break;
	case 1:
		while (!flag) {
			OK(MPI_Testall(n, all, &flag, statuses));
		}
		break;
	case 2:
		for (int i = 0; i < n; i++) {
			OK(MPI_Waitany(n, all, &index, &statuses[0]));
			CHECK(index >= 0 && index < n && all[index] == MPI_REQUEST_NULL);
		}
		OK(MPI_Waitany(n, all, &index, MPI_STATUS_IGNORE));
		CHECK(index == MPI_UNDEFINED);
		break;
	case 3:
		for (int ended = 0; ended < n; ended += done) {
			OK(MPI_Waitsome(n, all, &done, indices, statuses));
			CHECK(done > 0);
		}
		break;
	case 4:
		for (int ended = 0; ended < n; ended += done) {
			OK(MPI_Testsome(n, all, &done, indices, MPI_STATUSES_IGNORE));
			CHECK(done >= 0);
		}
		break;
	case 5:
		for (int i = n - 1; i >= 0; i--) {
			for (flag = 0; !flag;) {
				OK(MPI_Request_get_status(all[i], &flag, MPI_STATUS_IGNORE));
			}
			OK(MPI_Wait(&all[i], &statuses[0]));
			CHECK(all[i] == MPI_REQUEST_NULL);
		}
		break;
	default:
		for (int ended = 0; ended < n; ended += flag) {
			OK(MPI_Testany(n, all, &index, &flag, MPI_STATUS_IGNORE));
		}
	}
	CHECK(received == rank);
	for (int i = 0; i < n_pending; i++) {
		OK(PMPI_Wait(&pendings[i].requests[1], MPI_STATUS_IGNORE));
		end_call(&pendings[i]);
	}
	n_pending = 0;
}

/* Calls a function and its PMPI twin, on one copy of the buffers each. */
#define TWICE(p, blocking, name, iname, ...)                          \
	do {                                                                 \
		if (blocking) {                                                     \
			{ enum { I = 0 }; OK(MPI_##name(__VA_ARGS__)); }                   \
			{ enum { I = 1 }; OK(PMPI_##name(__VA_ARGS__)); }                  \
		} else {                                                            \
			{ enum { I = 0 }; OK(MPI_##iname(__VA_ARGS__, &(p)->requests[0])); }  \
			{ enum { I = 1 }; OK(PMPI_##iname(__VA_ARGS__, &(p)->requests[1])); } \
		}                                                                   \
	} while (0)

static void one_call(int number, int most) {
	int which = upto(&common, MAX_COMMS), kind = upto(&common, 8);
	bool blocking = upto(&common, 3) > 0, in_place = upto(&common, 3) == 0;
	int element = 1 + upto(&common, 40), limit = most / element + 1;
	int count = upto(&common, 10) == 0 ? 0 : upto(&common, upto(&common, 4) == 0 ? limit : limit / 16 + 2);
	uint64_t shape = next(&common);
	bool renews = upto(&common, 60) == 0 && which > 0, ends = upto(&common, 8) == 0;
	if (renews) {
		end_pending();
		renew_comm(which);
		return;
	}
	MPI_Comm comm = comms[which].comm;
	if (comm == MPI_COMM_NULL) {
		return;
	}
	int me = comms[which].rank, ranks = comms[which].size;
	struct pending *p = &pendings[n_pending];
	memset(p, 0, sizeof(*p));
	p->number = number;
	if (kind == 0) {
		OK(MPI_Barrier(comm));
		return;
	}
	if (kind <= 3) {
		int root = (int)(shape % (uint64_t)ranks);
		p->name = "broadcast";
		p->recv = make_buffer(make_type(element), count);
		TWICE(p, blocking, Bcast, Ibcast, p->recv.at[I], count, p->recv.type, root, comm);
	} else if (kind <= 5) {
		p->name = "allgather";
		p->recv = make_buffer(make_type(element), count * ranks);
		p->has_send = !in_place;
		if (p->has_send) {
			p->send = make_buffer(make_type(element), count);
		}
		TWICE(p, blocking, Allgather, Iallgather, in_place ? MPI_IN_PLACE : p->send.at[I], count,
			in_place ? MPI_DATATYPE_NULL : p->send.type, p->recv.at[I], count, p->recv.type, comm);
	} else {
		int at = 0, last = 0, gap = upto(&own, 2) == 0 ? 0 : 1 + upto(&own, 3);
		bool reversed = upto(&own, 3) == 0;
		p->name = "allgatherv";
		p->counts = need((size_t)ranks * sizeof(int));
		p->displs = need((size_t)ranks * sizeof(int));
		for (int i = 0; i < ranks; i++) {
			p->counts[i] = count == 0 ? 0 : (int)(next(&shape) % (uint64_t)count);
		}
		for (int i = 0; i < ranks; i++) {
			int r = reversed ? ranks - 1 - i : i;
			p->displs[r] = at;
			last = at + p->counts[r];
			at = last + gap;
		}
		p->recv = make_buffer(make_type(element), last);
		p->has_send = !in_place;
		if (p->has_send) {
			p->send = make_buffer(make_type(element), p->counts[me]);
		}
		TWICE(p, blocking, Allgatherv, Iallgatherv, in_place ? MPI_IN_PLACE : p->send.at[I],
			in_place ? 0 : p->counts[me], in_place ? MPI_DATATYPE_NULL : p->send.type, p->recv.at[I], p->counts,
			p->displs, p->recv.type, comm);
	}
	if (blocking) {
		end_call(p);
	} else {
		n_pending++;
	}
	if (n_pending == MAX_PENDING || ends) {
		end_pending();
	}
}

int main(int argc, char **argv) {
	start(&argc, &argv, MPI_THREAD_SINGLE);
	if (argc < 4) {
		FAIL("want the arguments seed, calls and bytes");
	}
	common = (uint64_t)atoll(argv[1]);
	own = common * 1000 + (uint64_t)rank + 1;
	set_comm(0, MPI_COMM_WORLD);
	for (int i = 1; i < MAX_COMMS; i++) {
		comms[i].comm = MPI_COMM_NULL;
		renew_comm(i);
	}
	for (int i = 0; i < atoi(argv[2]); i++) {
		one_call(i, atoi(argv[3]));
	}
	end_pending();
	for (int i = 1; i < MAX_COMMS; i++) {
		if (comms[i].comm != MPI_COMM_NULL) {
			OK(MPI_Comm_free(&comms[i].comm));
		}
	}
	return passed();
}
