/* Wrong arguments and handles: every call returns a code and a message, and starts nothing. */
#include <limits.h>
#include <pthread.h>

#include "test.h"

static void options(void) {
	allcast_options o;
	allcast_comm comm;
	EXPECT(ALLCAST_ERR_INVALID, allcast_options_new(NULL));
	OK(allcast_options_new(&o));
	EXPECT(ALLCAST_ERR_OPTIONS, allcast_options_set(o, "color", "red", 3));
	SAYS("color");
	SAYS("join-timeout"); /* the list of valid names */
	EXPECT(ALLCAST_ERR_INVALID, allcast_options_set(o, NULL, "red", 3));
	EXPECT(ALLCAST_ERR_INVALID, allcast_options_set(o, "addr", NULL, 3));
	static const char *const bad[][2] = {
		{"rank", "first"}, {"timeout", "10"}, {"timeout", "-1s"}, {"secure", "yes"}, {"rate", "fast"}, {"groups", "x"},
		{"comm-groups", "1"}, {"pin", "1;2"}, {"log", "loud"}, {"calibrate", ""},
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		EXPECT(ALLCAST_ERR_OPTIONS, allcast_options_set(o, bad[i][0], bad[i][1], strlen(bad[i][1])));
		SAYS(bad[i][0]);
	}
	static const char *const good[][2] = {
		{"rank", "3"}, {"addr", "127.0.0.1:1"}, {"attempt", "2"}, {"key", "0123456789abcdef"}, {"secure", "off"},
		{"integrity", "on"}, {"interface", "lo"}, {"fabric", "ip"}, {"device", "mlx5_0"}, {"rack", "r1"}, {"rate", "25gbit"},
		{"timeout", "1500ms"}, {"join-timeout", "3s"}, {"deadline", "1m"}, {"subgroups", "1"},
		{"aggregators", "10.0.0.1:7900=0"}, {"site-key", "sixteen bytes..."},
		{"groups", "239.1.2.3:5000"}, {"comm-groups", "239.196.0.0/16"}, {"chunk", "1000"}, {"ttl", "1"}, {"dscp", "1"},
		{"receive-buffer", "65536"}, {"plain-sockets", "on"}, {"no-multicast", "on"}, {"datapath", "host"}, {"hook", ""},
		{"receive-cores", "0,1"}, {"pin", "0"}, {"tuning", "allgather:ring"}, {"calibrate", "off"}, {"log", "off"},
	};
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		OK(allcast_options_set(o, good[i][0], good[i][1], strlen(good[i][1])));
	}
	EXPECT(ALLCAST_ERR_OPTIONS, allcast_join(o, NULL, &comm)); /* a rank without a size */
	SAYS("size");
	OK(allcast_options_set(o, "size", "2", 1));
	EXPECT(ALLCAST_ERR_OPTIONS, allcast_join(o, NULL, &comm)); /* rank 3 of 2 */
	SAYS("3");
	OK(allcast_options_free(o));
	allcast_options one;
	OK(allcast_options_new(&one));
	OK(allcast_options_set(one, "size", "2", 1));
	EXPECT(ALLCAST_ERR_OPTIONS, allcast_join(one, NULL, &comm)); /* a size without a rank */
	SAYS("rank");
	OK(allcast_options_free(one));
	EXPECT(ALLCAST_ERR_INVALID, allcast_options_free(o));
	EXPECT(ALLCAST_ERR_INVALID, allcast_options_set(o, "rank", "0", 1));
	EXPECT(ALLCAST_ERR_INVALID, allcast_join(o, NULL, &comm));
	EXPECT(ALLCAST_ERR_INVALID, allcast_join(0, NULL, NULL));
	allcast_store empty = {0};
	EXPECT(ALLCAST_ERR_INVALID, allcast_join(0, &empty, &comm));
	EXPECT(ALLCAST_ERR_OPTIONS, allcast_join(0, NULL, &comm)); /* nothing in the environment */
	SAYS("allcast run");
}

/* A rank that does not come. */
static void missing_rank(void) {
	allcast_options o;
	allcast_comm comm;
	char addr[64];
	CHECK(getenv("MASTER_PORT") != NULL);
	snprintf(addr, sizeof(addr), "127.0.0.1:%s", getenv("MASTER_PORT"));
	OK(allcast_options_new(&o));
	OK(allcast_options_set(o, "rank", "0", 1));
	OK(allcast_options_set(o, "size", "2", 1));
	OK(allcast_options_set(o, "addr", addr, strlen(addr)));
	OK(allcast_options_set(o, "join-timeout", "200ms", 5));
	EXPECT(ALLCAST_ERR_JOIN, allcast_join(o, NULL, &comm));
	SAYS("missing: 1");
	OK(allcast_options_free(o));
}

/* An option overrides a variable, also with off, and a variable that the program sets after loading counts. */
static void environment(void) {
	allcast_options o;
	allcast_comm comm;
	char *text;
	setenv("ALLCAST_INTEGRITY", "on", 1);
	comm = join_alone();
	OK(allcast_describe(comm, &text));
	CHECK(strstr(text, "\"integrity\":true") != NULL);
	allcast_text_free(text);
	OK(allcast_close(comm));
	OK(allcast_options_new(&o));
	OK(allcast_options_set(o, "size", "1", 1));
	OK(allcast_options_set(o, "integrity", "off", 3));
	OK(allcast_join(o, NULL, &comm));
	OK(allcast_describe(comm, &text));
	CHECK(strstr(text, "\"integrity\":false") != NULL);
	allcast_text_free(text);
	OK(allcast_close(comm));
	OK(allcast_options_free(o));
	unsetenv("ALLCAST_INTEGRITY");
}

static void buffers(allcast_comm comm) {
	char b[16];
	size_t counts[1] = {4}, huge[1] = {SIZE_MAX};
	void *memory;
	allcast_request request;
	allcast_call c = ALLCAST_CALL_INIT;
	EXPECT(ALLCAST_ERR_INVALID, allcast_broadcast(comm, NULL, 4, 0, NULL));
	SAYS("buf is NULL");
	EXPECT(ALLCAST_ERR_INVALID, allcast_broadcast(comm, b, 4, 1, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_broadcast(comm, b, 4, -1, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_broadcast(comm, b, SIZE_MAX, 0, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_allgather(comm, b, NULL, 4, NULL));
	SAYS("recv is NULL");
	EXPECT(ALLCAST_ERR_INVALID, allcast_allgather(comm, b, b, SIZE_MAX, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_allgatherv(comm, b, b, NULL, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_allgatherv(comm, b, b, huge, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_gather(comm, b, NULL, 4, 0, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_gather(comm, b, b, 4, INT_MAX, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_gatherv(comm, b, 4, NULL, counts, 0, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_scatter(comm, NULL, b, 4, 0, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_scatterv(comm, b, NULL, b, 4, 0, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_alltoall(comm, b, NULL, 4, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_alltoallv(comm, b, counts, b, NULL, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_reduce(comm, b, NULL, 4, ALLCAST_INT32, ALLCAST_SUM, 0, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_reduce_scatter(comm, NULL, b, 4, ALLCAST_INT32, ALLCAST_SUM, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_reduce_scatterv(comm, NULL, b, counts, ALLCAST_INT32, ALLCAST_SUM, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_allreduce(comm, b, b + 4, 3, ALLCAST_INT32, ALLCAST_SUM, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_allreduce(comm, b, b + 4, 4, 0, ALLCAST_SUM, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_allreduce(comm, b, b + 4, 4, 256 + ALLCAST_INT32, ALLCAST_SUM, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_allreduce(comm, b, b + 4, 4, -1, ALLCAST_SUM, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_allreduce(comm, b, b + 4, 4, ALLCAST_INT32, 99, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_allreduce(comm, b, b + 4, 4, ALLCAST_INT32, 256 + ALLCAST_SUM, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_allreduce(comm, b, b + 4, 4, ALLCAST_FLOAT32, ALLCAST_XOR, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_broadcast_coalesced(comm, NULL, counts, 1, 0, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_broadcast_coalesced(comm, NULL, counts, SIZE_MAX, 0, NULL));
	void *const null_buffers[1] = {NULL};
	EXPECT(ALLCAST_ERR_INVALID, allcast_broadcast_coalesced(comm, null_buffers, counts, 1, 0, NULL));
	EXPECT(ALLCAST_ERR_INVALID,
		allcast_allgather_coalesced(comm, (const void *const *)null_buffers, null_buffers, counts, 1, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_send(comm, NULL, 4, 0, 0, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_send(comm, b, 4, 9, 0, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_send(comm, b, 4, 0, -1, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_recv(comm, NULL, 4, 0, 0, NULL, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_start_barrier(comm, NULL, NULL));
	SAYS("request is NULL");
	EXPECT(ALLCAST_ERR_INVALID, allcast_alloc(comm, SIZE_MAX, &memory));
	EXPECT(ALLCAST_ERR_INVALID, allcast_alloc(comm, 1, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_rank(comm, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_describe(comm, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_split(comm, -2, 0, -1, &comm));
	EXPECT(ALLCAST_ERR_INVALID, allcast_subset(comm, NULL, 1, "x", -1, &comm));
	EXPECT(ALLCAST_ERR_INVALID, allcast_set_parallelism(0));

	c.timeout_ms = -1;
	EXPECT(ALLCAST_ERR_INVALID, allcast_barrier(comm, &c));
	c.timeout_ms = INT64_MAX; /* longer than any clock */
	OK(allcast_barrier(comm, &c));
	c.timeout_ms = 0;
	c.chains = -1;
	EXPECT(ALLCAST_ERR_INVALID, allcast_barrier(comm, &c));
	c.chains = 0;
	c.queue = 77;
	EXPECT(ALLCAST_ERR_INVALID, allcast_barrier(comm, &c));
	EXPECT(ALLCAST_ERR_INVALID, allcast_start_barrier(comm, &c, &request));

	/* Empty buffers may be NULL. */
	OK(allcast_broadcast(comm, NULL, 0, 0, NULL));
	OK(allcast_allgather(comm, NULL, NULL, 0, NULL));
	OK(allcast_allreduce(comm, NULL, NULL, 0, ALLCAST_FLOAT32, ALLCAST_SUM, NULL));
	OK(allcast_barrier(comm, NULL));
}

/* Programs may have been compiled with an earlier or a later allcast.h. */
static void versions(allcast_comm comm) {
	struct {
		allcast_call known;
		uint64_t later;
	} c = {ALLCAST_CALL_INIT, 0};
	c.known.struct_size = sizeof(c);
	OK(allcast_barrier(comm, &c.known));
	c.later = 1;
	EXPECT(ALLCAST_ERR_INVALID, allcast_barrier(comm, &c.known));
	SAYS("does not know");
	c.known.struct_size = 8;
	EXPECT(ALLCAST_ERR_INVALID, allcast_barrier(comm, &c.known));
	SAYS("ALLCAST_CALL_INIT");
	CHECK(allcast_abi() == ALLCAST_ABI && strlen(allcast_version()) > 0);
}

static void handles(allcast_comm comm) {
	int n;
	allcast_request request;
	allcast_queue queue;
	EXPECT(ALLCAST_ERR_INVALID, allcast_rank(0, &n));
	EXPECT(ALLCAST_ERR_INVALID, allcast_rank(comm + 1, &n));
	EXPECT(ALLCAST_ERR_INVALID, allcast_close(0));
	OK(allcast_queue_new(&queue));
	EXPECT(ALLCAST_ERR_INVALID, allcast_rank(queue, &n)); /* a handle of another kind */
	EXPECT(ALLCAST_ERR_INVALID, allcast_queue_fd(comm, &n));
	OK(allcast_queue_free(queue));
	EXPECT(ALLCAST_ERR_INVALID, allcast_queue_free(queue));
	OK(allcast_start_barrier(comm, NULL, &request));
	OK(allcast_wait(request, -1, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_wait(request, -1, NULL));
	EXPECT(ALLCAST_ERR_INVALID, allcast_release(request));
	EXPECT(ALLCAST_ERR_INVALID, allcast_cancel(request));
	CHECK(strcmp(allcast_algorithm(request), "") == 0);
	OK(allcast_start_barrier(comm, NULL, &request));
	OK(allcast_release(request));
	EXPECT(ALLCAST_ERR_INVALID, allcast_wait(request, 0, NULL));
}

/* The last error belongs to the thread. */
static void *other_thread(void *unused) {
	(void)unused;
	CHECK(strcmp(allcast_error_message(), "") == 0 && allcast_error_rank() == -1);
	CHECK(allcast_error_code() == ALLCAST_OK);
	CHECK(strcmp(allcast_error_phase(), "") == 0 && allcast_error_world_rank() == -1);
	EXPECT(ALLCAST_ERR_INVALID, allcast_wait(1, 0, NULL));
	SAYS("request");
	return NULL;
}

static void messages(allcast_comm comm) {
	pthread_t t;
	EXPECT(ALLCAST_ERR_INVALID, allcast_barrier(0, NULL));
	SAYS("communicator");
	CHECK(pthread_create(&t, NULL, other_thread, NULL) == 0 && pthread_join(t, NULL) == 0);
	SAYS("communicator");
	CHECK(allcast_error_code() == ALLCAST_ERR_INVALID);
	OK(allcast_barrier(comm, NULL));
	CHECK(strcmp(allcast_error_message(), "") == 0 && allcast_error_code() == ALLCAST_OK);
	CHECK(strcmp(allcast_error_name(ALLCAST_ERR_RANK_LOST), "rank lost") == 0);
	for (int code = ALLCAST_OK; code <= ALLCAST_ERR_NO_AGGREGATION; code++) {
		CHECK(strlen(allcast_error_name(code)) > 0 && strstr(allcast_error_name(code), "unknown") == NULL);
	}
	CHECK(strstr(allcast_error_name(-1), "unknown") != NULL && strstr(allcast_error_name(1000), "unknown") != NULL);
}

int main(void) {
	unsetenv("RANK"); /* of the driver */
	unsetenv("WORLD_SIZE");
	options();
	missing_rank();
	environment();
	allcast_comm comm = join_alone();
	buffers(comm);
	versions(comm);
	handles(comm);
	messages(comm);
	OK(allcast_close(comm));
	int n;
	EXPECT(ALLCAST_ERR_CLOSED, allcast_close(comm));
	EXPECT(ALLCAST_ERR_CLOSED, allcast_rank(comm, &n));
	EXPECT(ALLCAST_ERR_CLOSED, allcast_abort(comm));
	allcast_comm next = join_alone();
	CHECK(next != comm);
	OK(allcast_close(next));
	return passed();
}
