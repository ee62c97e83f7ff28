/* Operations of Allcast on the buffers of MPI calls. Contiguous data is not copied. Other data is packed into a stage
 * before the operation, and unpacked when it has ended. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"

/* Lets MPI make progress on everything. MPICH's MPI_Iprobe does not for one-sided operations, and Open MPI's does not if
 * it finds a message. A look at a request that is unfinished does in both. */
void progress(void) {
	int flag;
	PMPI_Request_get_status(process.never, &flag, MPI_STATUS_IGNORE);
}

int raise_failure(struct transfer *t) {
	struct comm *c = t->comm;
	const char *message = t->failure;
	if (t->kind == KINDS) {
		return MPI_ERR_OTHER; /* a measurement: the communicator passes through */
	}
	static atomic_int made;
	int code = atomic_load(&made), class;
	char text[MPI_MAX_ERROR_STRING];
	MPI_Comm comm = c->mpi == MPI_COMM_NULL ? MPI_COMM_WORLD : c->mpi;
	MPI_Errhandler handler;
	atomic_store(&process.broken, true);
	if (code == 0 && PMPI_Add_error_class(&class) == MPI_SUCCESS && PMPI_Add_error_code(class, &code) == MPI_SUCCESS) {
		PMPI_Add_error_string(class, "Allcast failed");
		atomic_store(&made, code);
	}
	snprintf(text, sizeof(text), "%s", message);
	if (code == 0 || PMPI_Add_error_string(code, text) != MPI_SUCCESS) {
		code = MPI_ERR_OTHER;
	}
	if (PMPI_Comm_get_errhandler(comm, &handler) == MPI_SUCCESS) {
		if (handler == MPI_ERRORS_ARE_FATAL) {
			fprintf(stderr, "allcast: rank %d: %s\n", process.rank, message);
		}
		PMPI_Errhandler_free(&handler);
	}
	PMPI_Comm_call_errhandler(comm, code);
	return code;
}

static void free_transfer(struct transfer *t) {
	if (t->blocks != &t->single) {
		free(t->blocks);
	}
	free(t->stage);
	if (t->owns_type) {
		PMPI_Type_free(&t->type);
	}
}

/* Ends an operation that this rank cannot start. The other ranks would wait for it. */
static int give_up(struct transfer *t, const char *message) {
	snprintf(t->failure, sizeof(t->failure), "%s", message);
	native.abort(t->comm->native);
	free_transfer(t);
	return raise_failure(t);
}

static int started(struct transfer *t, int code) {
	if (code == ALLCAST_OK) {
		return MPI_SUCCESS;
	}
	return give_up(t, native.error_message());
}

static bool make_stage(struct transfer *t, size_t bytes) {
	t->stage = malloc(bytes);
	return t->stage != NULL;
}

static const char no_memory[] = "allcast: not enough memory to pack the data of a call";

int start_bcast(struct transfer *t, void *buf, MPI_Count count, MPI_Datatype type, int root) {
	struct layout l = layout_of(type);
	void *data = buf;
	t->begin = PMPI_Wtime();
	if (!l.dense) {
		if (!make_stage(t, (size_t)t->bytes)) {
			return give_up(t, no_memory);
		}
		data = t->stage;
		if (t->comm->rank == root) {
			pack(buf, count, &l, t->stage);
		} else {
			t->type = type;
			t->single = (struct block){buf, count, (size_t)t->bytes};
			t->blocks = &t->single;
			t->n = 1;
		}
	}
	return started(t, native.start_broadcast(t->comm->native, data, (size_t)t->bytes, root, NULL, &t->request));
}

int start_allgather(struct transfer *t, const void *send, MPI_Count send_count, MPI_Datatype send_type, void *recv,
	MPI_Count recv_count, MPI_Datatype recv_type) {
	struct comm *c = t->comm;
	struct layout to = layout_of(recv_type);
	size_t each = (size_t)(recv_count * to.size);
	char *all = recv;
	t->begin = PMPI_Wtime();
	if (!to.dense) {
		if (!make_stage(t, each * (size_t)c->size)) {
			return give_up(t, no_memory);
		}
		all = t->stage;
		t->type = recv_type;
		t->single = (struct block){recv, recv_count * c->size, each * (size_t)c->size};
		t->blocks = &t->single;
		t->n = 1;
	}
	char *own = all + (size_t)c->rank * each;
	if (send == MPI_IN_PLACE) {
		if (!to.dense) {
			pack((char *)recv + (MPI_Aint)c->rank * recv_count * to.extent, recv_count, &to, own);
		}
		send = NULL;
	} else {
		struct layout from = layout_of(send_type);
		if (!from.dense) {
			pack(send, send_count, &from, own);
			send = NULL;
		}
	}
	return started(t, native.start_allgather(c->native, send, all, each, NULL, &t->request));
}

/* Reports whether the blocks follow each other in memory. *first is where they start. */
static bool adjacent(const struct transfer *t, char **first) {
	char *next = NULL;
	*first = NULL;
	for (int i = 0; i < t->n; i++) {
		const struct block *b = &t->blocks[i];
		if (b->bytes == 0) {
			continue;
		}
		if (*first == NULL) {
			*first = next = b->to;
		}
		if (b->to != next) {
			return false;
		}
		next += b->bytes;
	}
	return true;
}

int start_allgatherv(struct transfer *t, const void *send, MPI_Count send_count, MPI_Datatype send_type,
	MPI_Datatype recv_type) {
	struct comm *c = t->comm;
	struct layout to = layout_of(recv_type);
	const struct block *mine = &t->blocks[c->rank];
	size_t *counts = malloc((size_t)c->size * sizeof(size_t)), before = 0;
	char *all;
	t->begin = PMPI_Wtime();
	if (counts == NULL) {
		return give_up(t, no_memory);
	}
	for (int i = 0; i < c->size; i++) {
		counts[i] = t->blocks[i].bytes;
		before += i < c->rank ? counts[i] : 0;
	}
	if (!to.dense || !adjacent(t, &all)) {
		if (!make_stage(t, (size_t)t->bytes)) {
			free(counts);
			return give_up(t, no_memory);
		}
		all = t->stage;
		t->type = recv_type;
	}
	char *own = all + before;
	if (send == MPI_IN_PLACE) {
		if (t->stage != NULL) {
			pack(mine->to, mine->count, &to, own);
		}
		send = NULL;
	} else {
		struct layout from = layout_of(send_type);
		if (!from.dense) {
			pack(send, send_count, &from, own);
			send = NULL;
		}
	}
	if (mine->bytes == 0) {
		send = NULL; /* an empty block may have any address */
	}
	int code = native.start_allgatherv(c->native, send, all, counts, NULL, &t->request);
	free(counts);
	return started(t, code);
}

int start_barrier(struct transfer *t) {
	t->begin = PMPI_Wtime();
	return started(t, native.start_barrier(t->comm->native, NULL, &t->request));
}

int start_reduce_scatter(struct transfer *t, const void *send, void *recv, int64_t bytes, int type, int op) {
	t->begin = PMPI_Wtime();
	if (send == MPI_IN_PLACE) {
		if (!make_stage(t, (size_t)t->bytes)) {
			return give_up(t, no_memory);
		}
		send = memcpy(t->stage, recv, (size_t)t->bytes);
	}
	return started(t, native.start_reduce_scatter(t->comm->native, send, recv, (size_t)bytes, type, op, NULL, &t->request));
}

int start_allreduce(struct transfer *t, const void *send, void *recv, int64_t bytes, int type, int op) {
	t->begin = PMPI_Wtime();
	return started(t, native.start_allreduce(t->comm->native, send == MPI_IN_PLACE ? NULL : send, recv, (size_t)bytes,
				  type, op, NULL, &t->request));
}

void keep_types(struct transfer *t) {
	if (t->type != MPI_DATATYPE_NULL && PMPI_Type_dup(t->type, &t->type) == MPI_SUCCESS) {
		t->owns_type = true;
	}
}

/* Unpacks what the operation has received. */
static int finish(struct transfer *t) {
	int code = MPI_SUCCESS;
	count_taken(t, PMPI_Wtime() - t->begin);
	if (t->stage != NULL && t->type != MPI_DATATYPE_NULL) {
		struct layout l = layout_of(t->type);
		const char *from = t->stage;
		for (int i = 0; i < t->n && code == MPI_SUCCESS; i++) {
			const struct block *b = &t->blocks[i];
			if (b->bytes > 0) {
				code = unpack(from, b->to, b->count, &l);
			}
			from += b->bytes;
		}
	}
	free_transfer(t);
	return code;
}

/* Waits for an operation for at most wait_ms. */
bool poll_transfer(struct transfer *t, int64_t wait_ms, int *code) {
	switch (native.wait(t->request, wait_ms, NULL)) {
	case ALLCAST_OK:
		*code = finish(t);
		return true;
	case ALLCAST_ERR_TIMEOUT:
		return false;
	default:
		snprintf(t->failure, sizeof(t->failure), "%s", native.error_message());
		free_transfer(t);
		*code = MPI_ERR_OTHER;
		return true;
	}
}

int await(struct transfer *t) {
	/* Programs rarely depend on MPI's progress here, so a rank that has waited for long looks less often. */
	static const int64_t often = 1, rarely = 4;
	int code;
	for (int i = 0; !poll_transfer(t, i < 100 ? often : rarely, &code); i++) {
		progress();
	}
	/* Programs expect that messages which arrived before a Barrier ended have been seen. */
	progress();
	return t->failure[0] != '\0' ? raise_failure(t) : code;
}
