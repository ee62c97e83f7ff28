/* The binary interface, version 1. A change here breaks compiled programs and needs another ALLCAST_ABI. */
#include "test.h"

_Static_assert(ALLCAST_ABI == 1, "write the checks of another version");

#define FIELD(type, field, at) _Static_assert(offsetof(type, field) == (at), #type "." #field)

_Static_assert(sizeof(allcast_call) == 56, "allcast_call");
FIELD(allcast_call, struct_size, 0);
FIELD(allcast_call, algorithm, 8);
FIELD(allcast_call, timeout_ms, 16);
FIELD(allcast_call, factor, 24);
FIELD(allcast_call, queue, 32);
FIELD(allcast_call, user, 40);
FIELD(allcast_call, chains, 48);
FIELD(allcast_call, subgroups, 52);

_Static_assert(sizeof(allcast_completion) == 24, "allcast_completion");
FIELD(allcast_completion, request, 0);
FIELD(allcast_completion, user, 8);
FIELD(allcast_completion, error, 16);

_Static_assert(sizeof(allcast_message) == 16, "allcast_message");
FIELD(allcast_message, source, 0);
FIELD(allcast_message, tag, 4);
FIELD(allcast_message, bytes, 8);

_Static_assert(sizeof(allcast_store) == 24, "allcast_store");
FIELD(allcast_store, user, 0);
FIELD(allcast_store, set, 8);
FIELD(allcast_store, get, 16);

#define VALUE(name, value) _Static_assert((name) == (value), #name)

VALUE(ALLCAST_OK, 0);
VALUE(ALLCAST_ERR_INVALID, 1);
VALUE(ALLCAST_ERR_OPTIONS, 2);
VALUE(ALLCAST_ERR_RANK_LOST, 3);
VALUE(ALLCAST_ERR_ABORTED, 4);
VALUE(ALLCAST_ERR_DEADLINE, 5);
VALUE(ALLCAST_ERR_MISMATCH, 6);
VALUE(ALLCAST_ERR_PROTOCOL, 7);
VALUE(ALLCAST_ERR_CORRUPT, 8);
VALUE(ALLCAST_ERR_CLOSED, 9);
VALUE(ALLCAST_ERR_NO_MULTICAST, 10);
VALUE(ALLCAST_ERR_IN_USE, 11);
VALUE(ALLCAST_ERR_TRUNCATED, 12);
VALUE(ALLCAST_ERR_MISSING, 13);
VALUE(ALLCAST_ERR_TIMEOUT, 14);
VALUE(ALLCAST_ERR_WITHDRAWN, 15);
VALUE(ALLCAST_ERR_STORE, 16);
VALUE(ALLCAST_ERR_FORKED, 17);
VALUE(ALLCAST_ERR_JOIN, 18);
VALUE(ALLCAST_ERR_OTHER, 19);
VALUE(ALLCAST_ERR_NO_AGGREGATION, 20);

VALUE(ALLCAST_FLOAT32, 1);
VALUE(ALLCAST_BOOL, 13);
VALUE(ALLCAST_SUM, 1);
VALUE(ALLCAST_PREMULTIPLIED_SUM, 9);
VALUE(ALLCAST_ANY_SOURCE, -1);

int main(void) {
	CHECK(allcast_abi() == ALLCAST_ABI);
	printf("version %s\n", allcast_version());
	return passed();
}
