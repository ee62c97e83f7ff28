/*
 * The calls that the library takes over, as a list for macros:
 *
 *   CALL(result, name, parameters, arguments)           a C function
 *   FORTRAN(name, UPPER, Mixed, parameters, arguments)  a Fortran subroutine of Open MPI, which bypasses C wrappers
 *
 * preload.c defines a function with each name, and struct core (core.h) has a pointer for each.
 */
#ifndef ALLCAST_MPI_CALLS_H
#define ALLCAST_MPI_CALLS_H

#include <mpi.h>

#define CALLS_BASE(CALL)                                                                                       \
	CALL(int, MPI_Init, (int *argc, char ***argv), (argc, argv))                                                  \
	CALL(int, MPI_Init_thread, (int *argc, char ***argv, int required, int *provided),                            \
		(argc, argv, required, provided))                                                                            \
	CALL(int, MPI_Finalize, (void), ())                                                                           \
	CALL(int, MPI_Bcast, (void *buf, int count, MPI_Datatype type, int root, MPI_Comm comm),                      \
		(buf, count, type, root, comm))                                                                              \
	CALL(int, MPI_Allgather, (const void *send, int send_count, MPI_Datatype send_type, void *recv,               \
		int recv_count, MPI_Datatype recv_type, MPI_Comm comm),                                                      \
		(send, send_count, send_type, recv, recv_count, recv_type, comm))                                            \
	CALL(int, MPI_Allgatherv, (const void *send, int send_count, MPI_Datatype send_type, void *recv,              \
		const int *counts, const int *displs, MPI_Datatype recv_type, MPI_Comm comm),                                \
		(send, send_count, send_type, recv, counts, displs, recv_type, comm))                                        \
	CALL(int, MPI_Barrier, (MPI_Comm comm), (comm))                                                               \
	CALL(int, MPI_Reduce_scatter_block, (const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op,   \
		MPI_Comm comm), (send, recv, count, type, op, comm))                                                         \
	CALL(int, MPI_Allreduce, (const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op,              \
		MPI_Comm comm), (send, recv, count, type, op, comm))                                                         \
	CALL(int, MPI_Ibcast, (void *buf, int count, MPI_Datatype type, int root, MPI_Comm comm,                      \
		MPI_Request *request), (buf, count, type, root, comm, request))                                              \
	CALL(int, MPI_Iallgather, (const void *send, int send_count, MPI_Datatype send_type, void *recv,              \
		int recv_count, MPI_Datatype recv_type, MPI_Comm comm, MPI_Request *request),                                \
		(send, send_count, send_type, recv, recv_count, recv_type, comm, request))                                   \
	CALL(int, MPI_Iallgatherv, (const void *send, int send_count, MPI_Datatype send_type, void *recv,             \
		const int *counts, const int *displs, MPI_Datatype recv_type, MPI_Comm comm, MPI_Request *request),          \
		(send, send_count, send_type, recv, counts, displs, recv_type, comm, request))                               \
	CALL(int, MPI_Wait, (MPI_Request *request, MPI_Status *status), (request, status))                            \
	CALL(int, MPI_Waitall, (int n, MPI_Request requests[], MPI_Status *statuses), (n, requests, statuses))        \
	CALL(int, MPI_Waitany, (int n, MPI_Request requests[], int *index, MPI_Status *status),                       \
		(n, requests, index, status))                                                                                \
	CALL(int, MPI_Waitsome, (int n, MPI_Request requests[], int *done, int indices[], MPI_Status *statuses),      \
		(n, requests, done, indices, statuses))                                                                      \
	CALL(int, MPI_Test, (MPI_Request *request, int *flag, MPI_Status *status), (request, flag, status))           \
	CALL(int, MPI_Testall, (int n, MPI_Request requests[], int *flag, MPI_Status *statuses),                      \
		(n, requests, flag, statuses))                                                                               \
	CALL(int, MPI_Testany, (int n, MPI_Request requests[], int *index, int *flag, MPI_Status *status),            \
		(n, requests, index, flag, status))                                                                          \
	CALL(int, MPI_Testsome, (int n, MPI_Request requests[], int *done, int indices[], MPI_Status *statuses),      \
		(n, requests, done, indices, statuses))                                                                      \
	CALL(int, MPI_Request_get_status, (MPI_Request request, int *flag, MPI_Status *status),                       \
		(request, flag, status))

/* The calls of MPI 4 with counts above 2^31. */
#if MPI_VERSION >= 4
#define CALLS_LARGE(CALL)                                                                                      \
	CALL(int, MPI_Bcast_c, (void *buf, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm),              \
		(buf, count, type, root, comm))                                                                              \
	CALL(int, MPI_Allgather_c, (const void *send, MPI_Count send_count, MPI_Datatype send_type, void *recv,       \
		MPI_Count recv_count, MPI_Datatype recv_type, MPI_Comm comm),                                                \
		(send, send_count, send_type, recv, recv_count, recv_type, comm))                                            \
	CALL(int, MPI_Allgatherv_c, (const void *send, MPI_Count send_count, MPI_Datatype send_type, void *recv,      \
		const MPI_Count *counts, const MPI_Aint *displs, MPI_Datatype recv_type, MPI_Comm comm),                     \
		(send, send_count, send_type, recv, counts, displs, recv_type, comm))                                        \
	CALL(int, MPI_Reduce_scatter_block_c, (const void *send, void *recv, MPI_Count count, MPI_Datatype type,      \
		MPI_Op op, MPI_Comm comm), (send, recv, count, type, op, comm))                                              \
	CALL(int, MPI_Allreduce_c, (const void *send, void *recv, MPI_Count count, MPI_Datatype type, MPI_Op op,      \
		MPI_Comm comm), (send, recv, count, type, op, comm))                                                         \
	CALL(int, MPI_Ibcast_c, (void *buf, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm,              \
		MPI_Request *request), (buf, count, type, root, comm, request))                                              \
	CALL(int, MPI_Iallgather_c, (const void *send, MPI_Count send_count, MPI_Datatype send_type, void *recv,      \
		MPI_Count recv_count, MPI_Datatype recv_type, MPI_Comm comm, MPI_Request *request),                          \
		(send, send_count, send_type, recv, recv_count, recv_type, comm, request))                                   \
	CALL(int, MPI_Iallgatherv_c, (const void *send, MPI_Count send_count, MPI_Datatype send_type, void *recv,     \
		const MPI_Count *counts, const MPI_Aint *displs, MPI_Datatype recv_type, MPI_Comm comm,                      \
		MPI_Request *request), (send, send_count, send_type, recv, counts, displs, recv_type, comm, request))
#else
#define CALLS_LARGE(CALL)
#endif

#define CALLS(CALL) CALLS_BASE(CALL) CALLS_LARGE(CALL)

#ifdef OPEN_MPI
#define FORTRAN_CALLS(FORTRAN)                                                                                 \
	FORTRAN(init, INIT, Init, (MPI_Fint *ierr), (ierr))                                                           \
	FORTRAN(init_thread, INIT_THREAD, Init_thread, (MPI_Fint *required, MPI_Fint *provided, MPI_Fint *ierr),      \
		(required, provided, ierr))                                                                                  \
	FORTRAN(finalize, FINALIZE, Finalize, (MPI_Fint *ierr), (ierr))                                               \
	FORTRAN(bcast, BCAST, Bcast, (char *buf, MPI_Fint *count, MPI_Fint *type, MPI_Fint *root, MPI_Fint *comm,     \
		MPI_Fint *ierr), (buf, count, type, root, comm, ierr))                                                       \
	FORTRAN(allgather, ALLGATHER, Allgather, (char *send, MPI_Fint *send_count, MPI_Fint *send_type, char *recv,  \
		MPI_Fint *recv_count, MPI_Fint *recv_type, MPI_Fint *comm, MPI_Fint *ierr),                                  \
		(send, send_count, send_type, recv, recv_count, recv_type, comm, ierr))                                      \
	FORTRAN(allgatherv, ALLGATHERV, Allgatherv, (char *send, MPI_Fint *send_count, MPI_Fint *send_type,           \
		char *recv, MPI_Fint *counts, MPI_Fint *displs, MPI_Fint *recv_type, MPI_Fint *comm, MPI_Fint *ierr),        \
		(send, send_count, send_type, recv, counts, displs, recv_type, comm, ierr))                                  \
	FORTRAN(barrier, BARRIER, Barrier, (MPI_Fint *comm, MPI_Fint *ierr), (comm, ierr))                            \
	FORTRAN(reduce_scatter_block, REDUCE_SCATTER_BLOCK, Reduce_scatter_block, (char *send, char *recv,            \
		MPI_Fint *count, MPI_Fint *type, MPI_Fint *op, MPI_Fint *comm, MPI_Fint *ierr),                              \
		(send, recv, count, type, op, comm, ierr))                                                                   \
	FORTRAN(allreduce, ALLREDUCE, Allreduce, (char *send, char *recv, MPI_Fint *count, MPI_Fint *type,            \
		MPI_Fint *op, MPI_Fint *comm, MPI_Fint *ierr), (send, recv, count, type, op, comm, ierr))                    \
	FORTRAN(ibcast, IBCAST, Ibcast, (char *buf, MPI_Fint *count, MPI_Fint *type, MPI_Fint *root, MPI_Fint *comm,  \
		MPI_Fint *request, MPI_Fint *ierr), (buf, count, type, root, comm, request, ierr))                           \
	FORTRAN(iallgather, IALLGATHER, Iallgather, (char *send, MPI_Fint *send_count, MPI_Fint *send_type,           \
		char *recv, MPI_Fint *recv_count, MPI_Fint *recv_type, MPI_Fint *comm, MPI_Fint *request, MPI_Fint *ierr),   \
		(send, send_count, send_type, recv, recv_count, recv_type, comm, request, ierr))                             \
	FORTRAN(iallgatherv, IALLGATHERV, Iallgatherv, (char *send, MPI_Fint *send_count, MPI_Fint *send_type,        \
		char *recv, MPI_Fint *counts, MPI_Fint *displs, MPI_Fint *recv_type, MPI_Fint *comm, MPI_Fint *request,      \
		MPI_Fint *ierr), (send, send_count, send_type, recv, counts, displs, recv_type, comm, request, ierr))        \
	FORTRAN(wait, WAIT, Wait, (MPI_Fint *request, MPI_Fint *status, MPI_Fint *ierr), (request, status, ierr))     \
	FORTRAN(waitall, WAITALL, Waitall, (MPI_Fint *n, MPI_Fint *requests, MPI_Fint *statuses, MPI_Fint *ierr),     \
		(n, requests, statuses, ierr))                                                                               \
	FORTRAN(waitany, WAITANY, Waitany, (MPI_Fint *n, MPI_Fint *requests, MPI_Fint *index, MPI_Fint *status,       \
		MPI_Fint *ierr), (n, requests, index, status, ierr))                                                         \
	FORTRAN(waitsome, WAITSOME, Waitsome, (MPI_Fint *n, MPI_Fint *requests, MPI_Fint *done, MPI_Fint *indices,    \
		MPI_Fint *statuses, MPI_Fint *ierr), (n, requests, done, indices, statuses, ierr))                           \
	FORTRAN(test, TEST, Test, (MPI_Fint *request, MPI_Fint *flag, MPI_Fint *status, MPI_Fint *ierr),              \
		(request, flag, status, ierr))                                                                               \
	FORTRAN(testall, TESTALL, Testall, (MPI_Fint *n, MPI_Fint *requests, MPI_Fint *flag, MPI_Fint *statuses,      \
		MPI_Fint *ierr), (n, requests, flag, statuses, ierr))                                                        \
	FORTRAN(testany, TESTANY, Testany, (MPI_Fint *n, MPI_Fint *requests, MPI_Fint *index, MPI_Fint *flag,         \
		MPI_Fint *status, MPI_Fint *ierr), (n, requests, index, flag, status, ierr))                                 \
	FORTRAN(testsome, TESTSOME, Testsome, (MPI_Fint *n, MPI_Fint *requests, MPI_Fint *done, MPI_Fint *indices,    \
		MPI_Fint *statuses, MPI_Fint *ierr), (n, requests, done, indices, statuses, ierr))                           \
	FORTRAN(request_get_status, REQUEST_GET_STATUS, Request_get_status, (MPI_Fint *request, MPI_Fint *flag,       \
		MPI_Fint *status, MPI_Fint *ierr), (request, flag, status, ierr))
#else
#define FORTRAN_CALLS(FORTRAN)
#endif

/* The functions behind the calls. liballcast_mpi_core.so exports one object, allcast_mpi_core. */
struct core {
#define CALL(result, name, parameters, arguments) result(*name) parameters;
	CALLS(CALL)
#undef CALL
#define FORTRAN(name, upper, mixed, parameters, arguments) void(*f_##name) parameters;
	FORTRAN_CALLS(FORTRAN)
#undef FORTRAN
	/* Prepares for a call that waits for all the requests, or tests them. It returns an MPI error code. */
	int (*await_all)(int n, const MPI_Request *requests);
	int (*test)(int n, const MPI_Request *requests);
};

#endif
