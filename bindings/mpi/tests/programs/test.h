/* Helpers of the test programs. A failed check ends the job. */
#ifndef ALLCAST_MPI_TEST_H
#define ALLCAST_MPI_TEST_H

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

#define FAIL(...)                                               \
	do {                                                           \
		fprintf(stderr, "rank %d: %s:%d: ", rank, __FILE__, __LINE__); \
		fprintf(stderr, __VA_ARGS__);                                 \
		fputc('\n', stderr);                                          \
		MPI_Abort(MPI_COMM_WORLD, 1);                                 \
	} while (0)

#define CHECK(condition)                 \
	do {                                    \
		if (!(condition)) {                    \
			FAIL("%s does not hold", #condition); \
		}                                      \
	} while (0)

#define OK(call) CHECK((call) == MPI_SUCCESS)

static inline void *need(size_t bytes) {
	void *p = malloc(bytes > 0 ? bytes : 1);
	CHECK(p != NULL);
	return p;
}

static inline void start(int *argc, char ***argv, int level) {
	int provided;
	OK(MPI_Init_thread(argc, argv, level, &provided));
	OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
	OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
}

/* Byte i of the data of rank r in call number n. */
static inline unsigned char pattern(int n, int r, size_t i) {
	return (unsigned char)((size_t)n * 31 + (size_t)r * 101 + i * 7 + (i >> 8));
}

static inline void fill(void *to, int n, int r, size_t bytes) {
	for (size_t i = 0; i < bytes; i++) {
		((unsigned char *)to)[i] = pattern(n, r, i);
	}
}

static inline bool holds(const void *at, int n, int r, size_t bytes) {
	for (size_t i = 0; i < bytes; i++) {
		if (((const unsigned char *)at)[i] != pattern(n, r, i)) {
			return false;
		}
	}
	return true;
}

/* Tells the driver that all checks of this rank have passed. */
static inline int passed(void) {
	OK(MPI_Finalize());
	printf("rank %d passed\n", rank);
	fflush(stdout);
	return 0;
}

#endif
