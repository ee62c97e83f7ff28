/*
 * liballcast_mpi.so, the object for LD_PRELOAD. It needs nothing but the C library, so that shells and launchers that
 * inherit LD_PRELOAD are not affected. The first MPI call loads liballcast_mpi_core.so from the same directory.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

static const struct core *core;

static void load(void) {
	Dl_info self;
	char path[4096] = "liballcast_mpi_core.so";
	const char *slash = dladdr((void *)load, &self) != 0 ? strrchr(self.dli_fname, '/') : NULL;
	if (slash != NULL) {
		snprintf(path, sizeof(path), "%.*s/liballcast_mpi_core.so", (int)(slash - self.dli_fname), self.dli_fname);
	}
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	core = library == NULL ? NULL : dlsym(library, "allcast_mpi_core");
	if (core == NULL) {
		fprintf(stderr, "allcast: cannot load %s: %s: keep it in the directory of liballcast_mpi.so, built by the same MPI\n",
			path, dlerror());
		exit(1);
	}
}

static const struct core *loaded(void) {
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, load);
	return core;
}

#define CALL(result, name, parameters, arguments) \
	result name parameters { return loaded()->name arguments; }
CALLS(CALL)

/* All names of a Fortran subroutine: of mpif.h and the module mpi for all compilers, and of the module mpi_f08. */
#define ALIAS(name, of) extern __typeof__(of) name __attribute__((alias(#of)));
#define FORTRAN(name, upper, mixed, parameters, arguments)         \
	void mpi_##name##_ parameters;                                    \
	void mpi_##name##_ parameters { loaded()->f_##name arguments; }   \
	ALIAS(mpi_##name##__, mpi_##name##_)                              \
	ALIAS(MPI_##upper, mpi_##name##_)                                 \
	ALIAS(MPI_##mixed##_f, mpi_##name##_)                             \
	ALIAS(MPI_##mixed##_f08, mpi_##name##_)                           \
	ALIAS(ompi_##name##_f, mpi_##name##_)
FORTRAN_CALLS(FORTRAN)

#ifdef OPEN_MPI
/* The module mpi_f08 calls these where an argument is logical. */
ALIAS(pmpi_test_, mpi_test_)
ALIAS(pmpi_testall_, mpi_testall_)
ALIAS(pmpi_testany_, mpi_testany_)
ALIAS(pmpi_testsome_, mpi_testsome_)
ALIAS(pmpi_request_get_status_, mpi_request_get_status_)
#endif

#ifdef MPICH
/* MPICH's module mpi_f08 calls PMPI functions of C where a call has no buffer. Its arguments have the form of C's. */
#define SET(ierr, code)        \
	do {                          \
		int result = (code);         \
		if ((ierr) != NULL) {        \
			*(ierr) = result;           \
		}                            \
	} while (0)

void mpi_init_f08_(int *ierr) { SET(ierr, loaded()->MPI_Init(NULL, NULL)); }

void mpi_init_thread_f08_(const int *required, int *provided, int *ierr) {
	SET(ierr, loaded()->MPI_Init_thread(NULL, NULL, *required, provided));
}

void mpi_finalize_f08_(int *ierr) { SET(ierr, loaded()->MPI_Finalize()); }

void mpi_barrier_f08_(const MPI_Comm *comm, int *ierr) { SET(ierr, loaded()->MPI_Barrier(*comm)); }

/* Calls that wait or test complete the library's requests, and leave the rest to MPICH. */
typedef void original(void *, void *, void *, void *, void *, void *);

static original *original_of(const char *name) {
	original *f = (original *)dlsym(RTLD_NEXT, name);
	if (f == NULL) {
		fprintf(stderr, "allcast: the Fortran library of MPICH lacks %s\n", name);
		exit(1);
	}
	return f;
}

#define F08(name, prepare, n, requests, ierr)                       \
	void name(void *a, void *b, void *c, void *d, void *e, void *f);   \
	void name(void *a, void *b, void *c, void *d, void *e, void *f) {  \
		int code = loaded()->prepare(n, requests);                        \
		original_of(#name)(a, b, c, d, e, f);                             \
		if (code != MPI_SUCCESS) {                                        \
			SET((int *)(ierr), code);                                        \
		}                                                                 \
	}
F08(mpi_wait_f08_, await_all, 1, a, c)
F08(mpi_waitall_f08_, await_all, *(int *)a, b, d)
F08(mpi_test_f08_, test, 1, a, d)
F08(mpi_testall_f08_, test, *(int *)a, b, e)
F08(mpi_testany_f08_, test, *(int *)a, b, f)
F08(mpi_testsome_f08_, test, *(int *)a, b, f)
F08(mpi_request_get_status_f08_, test, 1, a, d)

/* Converts an address that stands for a constant. MPICH's library for Fortran, which the program has loaded, defines it. */
static MPI_Status *status_of(MPI_Status *status, const char *ignore, MPI_Status *constant) {
	return (void *)status == dlsym(RTLD_DEFAULT, ignore) ? constant : status;
}

void mpi_waitany_f08_(const int *n, MPI_Request *requests, int *index, MPI_Status *status, int *ierr) {
	int i = MPI_UNDEFINED;
	status = status_of(status, "MPIR_F08_MPI_STATUS_IGNORE_OBJ", MPI_STATUS_IGNORE);
	SET(ierr, loaded()->MPI_Waitany(*n, requests, &i, status));
	*index = i == MPI_UNDEFINED ? i : i + 1;
}

/* Returns the index of a first request, which is 0 in some versions of MPICH, though Fortran counts from 1. */
static int first_index(void) {
	static int known = -1;
	__typeof__(&MPI_Isend) isend = (__typeof__(&MPI_Isend))dlsym(RTLD_DEFAULT, "PMPI_Isend");
	MPI_Request request;
	if (known < 0 && isend != NULL && isend(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_SELF, &request) == MPI_SUCCESS) {
		MPI_Status status;
		int n = 1, done = 0, index = 1, ierr;
		original_of("mpi_waitsome_f08_")(&n, &request, &done, &index, &status, &ierr);
		known = index;
	}
	return known < 0 ? 1 : known;
}

void mpi_waitsome_f08_(const int *n, MPI_Request *requests, int *done, int *indices, MPI_Status *statuses, int *ierr) {
	int first = first_index();
	*done = 0;
	statuses = status_of(statuses, "MPIR_F08_MPI_STATUSES_IGNORE_OBJ", MPI_STATUSES_IGNORE);
	SET(ierr, loaded()->MPI_Waitsome(*n, requests, done, indices, statuses));
	for (int i = 0; *done != MPI_UNDEFINED && i < *done; i++) {
		indices[i] += first;
	}
}
#endif
