/* Threads that join a job keep the handlers of signals that another thread installs meanwhile. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "test.h"

static atomic_bool stop;

/* Joins again and again. The options are invalid, so that each attempt ends at once. */
static void *joiner(void *unused) {
	(void)unused;
	allcast_options o;
	allcast_comm comm;
	OK(allcast_options_new(&o));
	OK(allcast_options_set(o, "rank", "5", 1));
	while (!stop) {
		EXPECT(ALLCAST_ERR_OPTIONS, allcast_join(o, NULL, &comm));
	}
	OK(allcast_options_free(o));
	return NULL;
}

static void first(int sig) { (void)sig; }
static void second(int sig) { (void)sig; }

int main(void) {
	pthread_t t;
	CHECK(pthread_create(&t, NULL, joiner, NULL) == 0);
	for (int i = 0; i < 200000; i++) {
		struct sigaction installed = {.sa_handler = i % 2 == 0 ? first : second}, found;
		CHECK(sigaction(SIGUSR1, &installed, NULL) == 0);
		/* The other thread may be about to swap two handlers. */
		int tries = 0;
		do {
			CHECK(sigaction(SIGUSR1, NULL, &found) == 0 && tries++ < 1000000);
		} while (found.sa_handler != installed.sa_handler);
	}
	stop = true;
	CHECK(pthread_join(t, NULL) == 0);
	return passed();
}
