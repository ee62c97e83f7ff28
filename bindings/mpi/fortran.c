/* Fortran subroutines of Open MPI. Its own call PMPI functions of C, which bypasses wrappers of the C functions. Those of
 * MPICH call the C functions, so they need nothing here. */
#include "core.h"

#ifdef OPEN_MPI
#include <stdlib.h>

/* Addresses that stand for constants. Open MPI's library defines these common blocks. */
extern int mpi_fortran_bottom_, mpi_fortran_in_place_, mpi_fortran_status_ignore_, mpi_fortran_statuses_ignore_;

static void *address(char *a) {
	return (void *)a == (void *)&mpi_fortran_bottom_ ? MPI_BOTTOM
		: (void *)a == (void *)&mpi_fortran_in_place_ ? MPI_IN_PLACE
							      : a;
}

static bool ignores(const MPI_Fint *status) {
	return (const void *)status == (const void *)&mpi_fortran_status_ignore_ ||
		(const void *)status == (const void *)&mpi_fortran_statuses_ignore_;
}

static void set(MPI_Fint *ierr, int code) {
	if (ierr != NULL) {
		*ierr = code;
	}
}

#define TYPE(f) PMPI_Type_f2c(*(f))
#define COMM(f) PMPI_Comm_f2c(*(f))

void core_f_init(MPI_Fint *ierr) { set(ierr, core_MPI_Init(NULL, NULL)); }

void core_f_init_thread(MPI_Fint *required, MPI_Fint *provided, MPI_Fint *ierr) {
	set(ierr, core_MPI_Init_thread(NULL, NULL, *required, provided));
}

void core_f_finalize(MPI_Fint *ierr) { set(ierr, core_MPI_Finalize()); }

void core_f_bcast(char *buf, MPI_Fint *count, MPI_Fint *type, MPI_Fint *root, MPI_Fint *comm, MPI_Fint *ierr) {
	set(ierr, core_MPI_Bcast(address(buf), *count, TYPE(type), *root, COMM(comm)));
}

void core_f_allgather(char *send, MPI_Fint *send_count, MPI_Fint *send_type, char *recv, MPI_Fint *recv_count,
	MPI_Fint *recv_type, MPI_Fint *comm, MPI_Fint *ierr) {
	set(ierr, core_MPI_Allgather(address(send), *send_count, TYPE(send_type), address(recv), *recv_count,
			  TYPE(recv_type), COMM(comm)));
}

void core_f_allgatherv(char *send, MPI_Fint *send_count, MPI_Fint *send_type, char *recv, MPI_Fint *counts,
	MPI_Fint *displs, MPI_Fint *recv_type, MPI_Fint *comm, MPI_Fint *ierr) {
	set(ierr, core_MPI_Allgatherv(address(send), *send_count, TYPE(send_type), address(recv), counts, displs,
			  TYPE(recv_type), COMM(comm)));
}

void core_f_barrier(MPI_Fint *comm, MPI_Fint *ierr) { set(ierr, core_MPI_Barrier(COMM(comm))); }

void core_f_reduce_scatter_block(char *send, char *recv, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op, MPI_Fint *comm,
	MPI_Fint *ierr) {
	set(ierr, core_MPI_Reduce_scatter_block(address(send), address(recv), *count, TYPE(type), PMPI_Op_f2c(*op), COMM(comm)));
}

void core_f_allreduce(char *send, char *recv, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op, MPI_Fint *comm,
	MPI_Fint *ierr) {
	set(ierr, core_MPI_Allreduce(address(send), address(recv), *count, TYPE(type), PMPI_Op_f2c(*op), COMM(comm)));
}

/* Stores the request of a call that has succeeded. */
static void set_request(MPI_Fint *request, MPI_Request r, MPI_Fint *ierr, int code) {
	if (code == MPI_SUCCESS) {
		*request = PMPI_Request_c2f(r);
	}
	set(ierr, code);
}

void core_f_ibcast(char *buf, MPI_Fint *count, MPI_Fint *type, MPI_Fint *root, MPI_Fint *comm, MPI_Fint *request,
	MPI_Fint *ierr) {
	MPI_Request r;
	int code = core_MPI_Ibcast(address(buf), *count, TYPE(type), *root, COMM(comm), &r);
	set_request(request, r, ierr, code);
}

void core_f_iallgather(char *send, MPI_Fint *send_count, MPI_Fint *send_type, char *recv, MPI_Fint *recv_count,
	MPI_Fint *recv_type, MPI_Fint *comm, MPI_Fint *request, MPI_Fint *ierr) {
	MPI_Request r;
	int code = core_MPI_Iallgather(
		address(send), *send_count, TYPE(send_type), address(recv), *recv_count, TYPE(recv_type), COMM(comm), &r);
	set_request(request, r, ierr, code);
}

void core_f_iallgatherv(char *send, MPI_Fint *send_count, MPI_Fint *send_type, char *recv, MPI_Fint *counts,
	MPI_Fint *displs, MPI_Fint *recv_type, MPI_Fint *comm, MPI_Fint *request, MPI_Fint *ierr) {
	MPI_Request r;
	int code = core_MPI_Iallgatherv(
		address(send), *send_count, TYPE(send_type), address(recv), counts, displs, TYPE(recv_type), COMM(comm), &r);
	set_request(request, r, ierr, code);
}

/* ---- Requests ---- */

/* Requests and statuses of a call in C. */
struct converted {
	int n;
	MPI_Request *requests;
	MPI_Status *statuses;
};

static struct converted convert(MPI_Fint n, const MPI_Fint *requests) {
	struct converted c = {.n = n};
	size_t room = n > 0 ? (size_t)n : 1;
	c.requests = malloc(room * sizeof(MPI_Request));
	c.statuses = malloc(room * sizeof(MPI_Status));
	if (c.requests == NULL || c.statuses == NULL) {
		abort();
	}
	for (int i = 0; i < n; i++) {
		c.requests[i] = PMPI_Request_f2c(requests[i]);
	}
	return c;
}

/* Stores the requests, and the first statuses unless the program ignores them. */
static void convert_back(struct converted *c, MPI_Fint *requests, MPI_Fint *statuses, int n_statuses) {
	const size_t each = sizeof(MPI_Status) / sizeof(MPI_Fint);
	for (int i = 0; i < c->n; i++) {
		requests[i] = PMPI_Request_c2f(c->requests[i]);
	}
	for (int i = 0; i < n_statuses && statuses != NULL && !ignores(statuses); i++) {
		PMPI_Status_c2f(&c->statuses[i], statuses + (size_t)i * each);
	}
	free(c->requests);
	free(c->statuses);
}

void core_f_wait(MPI_Fint *request, MPI_Fint *status, MPI_Fint *ierr) {
	struct converted c = convert(1, request);
	set(ierr, core_MPI_Wait(c.requests, c.statuses));
	convert_back(&c, request, status, 1);
}

void core_f_waitall(MPI_Fint *n, MPI_Fint *requests, MPI_Fint *statuses, MPI_Fint *ierr) {
	struct converted c = convert(*n, requests);
	set(ierr, core_MPI_Waitall(*n, c.requests, c.statuses));
	convert_back(&c, requests, statuses, *n);
}

/* Converts an index to Fortran's numbering, which starts at 1. */
static MPI_Fint index_of(int i) { return i == MPI_UNDEFINED ? i : i + 1; }

void core_f_waitany(MPI_Fint *n, MPI_Fint *requests, MPI_Fint *index, MPI_Fint *status, MPI_Fint *ierr) {
	struct converted c = convert(*n, requests);
	int i = MPI_UNDEFINED;
	set(ierr, core_MPI_Waitany(*n, c.requests, &i, c.statuses));
	*index = index_of(i);
	convert_back(&c, requests, status, 1);
}

static void convert_some(struct converted *c, MPI_Fint *requests, MPI_Fint *indices, MPI_Fint *statuses, int done) {
	int n = done == MPI_UNDEFINED ? 0 : done;
	for (int i = 0; i < n; i++) {
		indices[i] = index_of(indices[i]);
	}
	convert_back(c, requests, statuses, n);
}

void core_f_waitsome(MPI_Fint *n, MPI_Fint *requests, MPI_Fint *done, MPI_Fint *indices, MPI_Fint *statuses,
	MPI_Fint *ierr) {
	struct converted c = convert(*n, requests);
	set(ierr, core_MPI_Waitsome(*n, c.requests, done, indices, c.statuses));
	convert_some(&c, requests, indices, statuses, *done);
}

void core_f_test(MPI_Fint *request, MPI_Fint *flag, MPI_Fint *status, MPI_Fint *ierr) {
	struct converted c = convert(1, request);
	set(ierr, core_MPI_Test(c.requests, flag, c.statuses));
	convert_back(&c, request, status, *flag ? 1 : 0);
}

void core_f_testall(MPI_Fint *n, MPI_Fint *requests, MPI_Fint *flag, MPI_Fint *statuses, MPI_Fint *ierr) {
	struct converted c = convert(*n, requests);
	set(ierr, core_MPI_Testall(*n, c.requests, flag, c.statuses));
	convert_back(&c, requests, statuses, *flag ? *n : 0);
}

void core_f_testany(MPI_Fint *n, MPI_Fint *requests, MPI_Fint *index, MPI_Fint *flag, MPI_Fint *status,
	MPI_Fint *ierr) {
	struct converted c = convert(*n, requests);
	int i = MPI_UNDEFINED;
	set(ierr, core_MPI_Testany(*n, c.requests, &i, flag, c.statuses));
	*index = index_of(i);
	convert_back(&c, requests, status, *flag ? 1 : 0);
}

void core_f_testsome(MPI_Fint *n, MPI_Fint *requests, MPI_Fint *done, MPI_Fint *indices, MPI_Fint *statuses,
	MPI_Fint *ierr) {
	struct converted c = convert(*n, requests);
	set(ierr, core_MPI_Testsome(*n, c.requests, done, indices, c.statuses));
	convert_some(&c, requests, indices, statuses, *done);
}

void core_f_request_get_status(MPI_Fint *request, MPI_Fint *flag, MPI_Fint *status, MPI_Fint *ierr) {
	MPI_Status c;
	set(ierr, core_MPI_Request_get_status(PMPI_Request_f2c(*request), flag, &c));
	if (*flag && status != NULL && !ignores(status)) {
		PMPI_Status_c2f(&c, status);
	}
}
#endif
