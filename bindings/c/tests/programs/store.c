/* Joining through a store whose callbacks use files of a directory, the first argument. */
#include <errno.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "test.h"

struct directory {
	const char *path;
	pthread_t joiner;
	int sets, gets;
	int fail_set, fail_get; /* results of the callbacks, 0: none */
};

static void file_of(const struct directory *d, const char *key, char *to, size_t room) {
	int n = snprintf(to, room, "%s/%s", d->path, key);
	CHECK(n > 0 && (size_t)n < room);
	for (char *p = to + strlen(d->path) + 1; *p != '\0'; p++) {
		*p = *p == '/' ? '_' : *p;
	}
}

static int set(void *user, const char *key, const void *value, size_t length) {
	struct directory *d = user;
	char name[512], temporary[600];
	CHECK(pthread_equal(pthread_self(), d->joiner));
	d->sets++;
	if (d->fail_set != 0) {
		return d->fail_set;
	}
	file_of(d, key, name, sizeof(name));
	snprintf(temporary, sizeof(temporary), "%s.%d", name, (int)getpid());
	FILE *f = fopen(temporary, "wb");
	CHECK(f != NULL && fwrite(value, 1, length, f) == length && fclose(f) == 0);
	CHECK(rename(temporary, name) == 0);
	return 0;
}

static int get(void *user, const char *key, int64_t wait_ms, void **value, size_t *length) {
	struct directory *d = user;
	char name[512], content[4096];
	CHECK(pthread_equal(pthread_self(), d->joiner));
	CHECK(wait_ms >= 0 && wait_ms <= 1000);
	d->gets++;
	if (d->fail_get != 0) {
		return d->fail_get;
	}
	file_of(d, key, name, sizeof(name));
	FILE *f = fopen(name, "rb");
	if (f == NULL) {
		CHECK(errno == ENOENT);
		return 1;
	}
	*length = fread(content, 1, sizeof(content), f);
	CHECK(fclose(f) == 0);
	*value = need(malloc(*length + 1));
	memcpy(*value, content, *length);
	return 0;
}

static const char *variable(const char *name) {
	const char *value = getenv(name);
	CHECK(value != NULL);
	return value;
}

int main(int argc, char **argv) {
	CHECK(argc == 2);
	struct directory d = {.path = argv[1], .joiner = pthread_self()};
	allcast_store store = {&d, set, get};
	allcast_options o;
	allcast_comm comm;
	OK(allcast_options_new(&o));
	OK(allcast_options_set(o, "rank", variable("RANK"), strlen(variable("RANK"))));
	OK(allcast_options_set(o, "size", variable("WORLD_SIZE"), strlen(variable("WORLD_SIZE"))));

	/* A callback that fails ends the join at once. */
	OK(allcast_options_set(o, "attempt", "1", 1));
	d.fail_set = 7;
	EXPECT(ALLCAST_ERR_STORE, allcast_join(o, &store, &comm));
	SAYS("callback set returned 7");
	d.fail_set = 0;
	if (strcmp(variable("RANK"), "0") != 0) { /* rank 0 only sets a value */
		d.fail_get = -3;
		EXPECT(ALLCAST_ERR_STORE, allcast_join(o, &store, &comm));
		SAYS("callback get returned -3");
		d.fail_get = 0;
	}

	for (int attempt = 2; attempt < 5; attempt++) {
		char number[16];
		snprintf(number, sizeof(number), "%d", attempt);
		OK(allcast_options_set(o, "attempt", number, strlen(number)));
		d.sets = d.gets = 0;
		OK(allcast_join(o, &store, &comm));
		OK(allcast_rank(comm, &rank));
		CHECK(d.sets > 0 && (rank == 0 || d.gets > 0));
		OK(allcast_size(comm, &size));
		unsigned char mine[100], all[400];
		CHECK(size == 4);
		fill(mine, attempt, rank, sizeof(mine));
		OK(allcast_allgather(comm, mine, all, sizeof(mine), NULL));
		for (int r = 0; r < size; r++) {
			CHECK(holds(all + 100 * r, attempt, r, 100));
		}
		OK(allcast_close(comm));
	}
	OK(allcast_options_free(o));
	return passed();
}
