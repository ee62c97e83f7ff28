/* The functions of liballcast.so, which is loaded at run time because it starts the Go runtime. */
#ifndef ALLCAST_MPI_NATIVE_H
#define ALLCAST_MPI_NATIVE_H

#include <allcast.h>
#include <stdbool.h>
#include <stddef.h>

#define NATIVE(F)                                                                                              \
	F(abi) F(error_message) F(options_new) F(options_set) F(options_free) F(join) F(describe) F(text_free) F(abort) \
	F(close) F(subset) F(start_broadcast) F(start_allgather) F(start_allgatherv) F(start_reduce_scatter)           \
	F(start_allreduce) F(start_barrier) F(wait)

struct native {
#define F(name) __typeof__(&allcast_##name) name;
	NATIVE(F)
#undef F
};

extern struct native native;

/* Loads the library. On failure it returns false and describes the failure in message. */
bool load_native(char *message, size_t length);

#endif
