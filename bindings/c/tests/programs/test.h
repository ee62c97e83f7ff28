/* Helpers of the test programs. A failed check ends the program with status 1. */
#ifndef ALLCAST_TEST_H
#define ALLCAST_TEST_H

#include <allcast.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAIL(...)                                       \
	do {                                                   \
		fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);       \
		fprintf(stderr, __VA_ARGS__);                         \
		fprintf(stderr, "; last error of the library: \"%s\"\n", allcast_error_message()); \
		_Exit(1);                                             \
	} while (0)

#define CHECK(condition)                      \
	do {                                         \
		if (!(condition)) {                         \
			FAIL("%s does not hold", #condition);      \
		}                                           \
	} while (0)

/* Checks the code of a call. */
#define EXPECT(want, call)                                                                              \
	do {                                                                                                   \
		int got_ = (call);                                                                                    \
		if (got_ != (want)) {                                                                                 \
			FAIL("%s returned %d (%s), want %d", #call, got_, allcast_error_name(got_), (want));                 \
		}                                                                                                     \
	} while (0)

#define OK(call) EXPECT(ALLCAST_OK, call)

/* Checks that the last call has failed with a message that contains text. */
#define SAYS(text)                                                 \
	do {                                                              \
		if (strstr(allcast_error_message(), (text)) == NULL) {           \
			FAIL("the message lacks \"%s\"", (text));                       \
		}                                                                \
	} while (0)

static int rank, size;

static inline allcast_comm join_job(void) {
	allcast_comm comm;
	OK(allcast_join(0, NULL, &comm));
	OK(allcast_rank(comm, &rank));
	OK(allcast_size(comm, &size));
	return comm;
}

/* Joins a job of this process alone, which needs no network. */
static inline allcast_comm join_alone(void) {
	allcast_options o;
	allcast_comm comm;
	OK(allcast_options_new(&o));
	OK(allcast_options_set(o, "rank", "0", 1));
	OK(allcast_options_set(o, "size", "1", 1));
	OK(allcast_join(o, NULL, &comm));
	OK(allcast_options_free(o));
	rank = 0;
	size = 1;
	return comm;
}

static inline void *need(void *p) {
	if (p == NULL) {
		fprintf(stderr, "out of memory\n");
		_Exit(1);
	}
	return p;
}

/* Byte i of the data that rank r has for the call with this seed. */
static inline unsigned char pattern(int seed, int r, size_t i) {
	return (unsigned char)((size_t)seed * 31 + (size_t)r * 101 + i * 7 + (i >> 8));
}

static inline void fill(void *to, int seed, int r, size_t bytes) {
	for (size_t i = 0; i < bytes; i++) {
		((unsigned char *)to)[i] = pattern(seed, r, i);
	}
}

static inline bool holds(const void *at, int seed, int r, size_t bytes) {
	for (size_t i = 0; i < bytes; i++) {
		if (((const unsigned char *)at)[i] != pattern(seed, r, i)) {
			return false;
		}
	}
	return true;
}

/* Tells the driver that all checks of this rank have passed. */
static inline int passed(void) {
	printf("rank %d passed\n", rank);
	fflush(stdout);
	return 0;
}

#endif
