/* A rank forks a child. The child cannot use the library and does not disturb the job, whatever its end. */
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

static allcast_comm comm;
static allcast_options options;
static allcast_queue queue;
static allcast_request pending;

static int open_sockets(void) {
	int n = 0;
	for (int fd = 0; fd < 1024; fd++) {
		struct stat s;
		n += fstat(fd, &s) == 0 && S_ISSOCK(s.st_mode);
	}
	return n;
}

/* Calls every function in a child. */
static void child(void) {
	char b[8];
	void *p;
	char *text;
	int n;
	size_t count;
	allcast_comm other;
	allcast_request request;
	allcast_completion completion;
	CHECK(open_sockets() == 0); /* this program has none of its own */
	EXPECT(ALLCAST_ERR_FORKED, allcast_barrier(comm, NULL));
	SAYS("forked");
	SAYS("exec");
	CHECK(allcast_error_rank() == -1 && strcmp(allcast_error_phase(), "") == 0);
	EXPECT(ALLCAST_ERR_FORKED, allcast_options_new(&options));
	EXPECT(ALLCAST_ERR_FORKED, allcast_options_set(options, "rank", "0", 1));
	EXPECT(ALLCAST_ERR_FORKED, allcast_options_free(options));
	EXPECT(ALLCAST_ERR_FORKED, allcast_join(0, NULL, &other));
	EXPECT(ALLCAST_ERR_FORKED, allcast_rank(comm, &n));
	EXPECT(ALLCAST_ERR_FORKED, allcast_size(comm, &n));
	EXPECT(ALLCAST_ERR_FORKED, allcast_world_rank(comm, 0, &n));
	EXPECT(ALLCAST_ERR_FORKED, allcast_describe(comm, &text));
	EXPECT(ALLCAST_ERR_FORKED, allcast_stats(comm, &text));
	EXPECT(ALLCAST_ERR_FORKED, allcast_abort(comm));
	EXPECT(ALLCAST_ERR_FORKED, allcast_close(comm));
	EXPECT(ALLCAST_ERR_FORKED, allcast_split(comm, 0, 0, -1, &other));
	EXPECT(ALLCAST_ERR_FORKED, allcast_subset(comm, &rank, 1, NULL, -1, &other));
	EXPECT(ALLCAST_ERR_FORKED, allcast_shrink(comm, -1, &other));
	EXPECT(ALLCAST_ERR_FORKED, allcast_alloc(comm, 8, &p));
	EXPECT(ALLCAST_ERR_FORKED, allcast_free(comm, NULL));
	EXPECT(ALLCAST_ERR_FORKED, allcast_send(comm, b, 8, 0, 0, NULL));
	EXPECT(ALLCAST_ERR_FORKED, allcast_recv(comm, b, 8, 0, 0, NULL, NULL));
	EXPECT(ALLCAST_ERR_FORKED, allcast_start_barrier(comm, NULL, &request));
	EXPECT(ALLCAST_ERR_FORKED, allcast_wait(pending, -1, NULL));
	EXPECT(ALLCAST_ERR_FORKED, allcast_cancel(pending));
	EXPECT(ALLCAST_ERR_FORKED, allcast_release(pending));
	EXPECT(ALLCAST_ERR_FORKED, allcast_queue_new(&queue));
	EXPECT(ALLCAST_ERR_FORKED, allcast_queue_fd(queue, &n));
	EXPECT(ALLCAST_ERR_FORKED, allcast_queue_next(queue, &completion, 1, -1, &count));
	EXPECT(ALLCAST_ERR_FORKED, allcast_queue_free(queue));
	EXPECT(ALLCAST_ERR_FORKED, allcast_set_parallelism(1));
	CHECK(strcmp(allcast_algorithm(pending), "") == 0);
	CHECK(allcast_abi() == ALLCAST_ABI && strlen(allcast_version()) > 0);
	allcast_text_free(NULL);
}

static void collective(int seed) {
	unsigned char mine[1000], all[3000];
	CHECK(size == 3);
	fill(mine, seed, rank, sizeof(mine));
	OK(allcast_allgather(comm, mine, all, sizeof(mine), NULL));
	for (int r = 0; r < size; r++) {
		CHECK(holds(all + 1000 * r, seed, r, 1000));
	}
}

/* Forks a child that ends in one of several ways. */
static void fork_child(int end) {
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		child();
		switch (end) {
		case 0: exit(42); /* runs the handlers of atexit */
		case 1: _exit(42);
		case 2: raise(SIGSEGV); /* the handler of Go must not run here */
		}
		_exit(1);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid);
	if (end == 2) {
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	} else {
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
	}
}

/* A rank dies while its child lives. The others notice at once: their timeout is longer than the test. */
static void die_before_child(void) {
	if (rank != 1) {
		OK(allcast_send(comm, NULL, 0, 1, 2, NULL));
	} else {
		int ready[2];
		char c;
		/* A connection that the kernel resets loses what it has not delivered, so the others end the collective first. */
		OK(allcast_recv(comm, NULL, 0, 0, 2, NULL, NULL));
		OK(allcast_recv(comm, NULL, 0, 2, 2, NULL, NULL));
		CHECK(pipe(ready) == 0);
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (pid == 0) {
			close(STDOUT_FILENO);
			close(STDERR_FILENO);
			if (write(ready[1], "x", 1) == 1) {
				for (;;) {
					pause(); /* the driver ends this process */
				}
			}
			_exit(1);
		}
		CHECK(read(ready[0], &c, 1) == 1);
		raise(SIGKILL);
	}
	EXPECT(ALLCAST_ERR_RANK_LOST, allcast_barrier(comm, NULL));
	CHECK(allcast_error_rank() == 1);
}

int main(int argc, char **argv) {
	CHECK(argc == 2);
	signal(SIGSEGV, SIG_DFL);
	comm = join_job();
	OK(allcast_queue_new(&queue));
	OK(allcast_start_recv(comm, NULL, 0, ALLCAST_ANY_SOURCE, 1, NULL, &pending));
	collective(0);
	if (strcmp(argv[1], "die") == 0) {
		die_before_child();
	} else {
		for (int end = 0; end < 3; end++) {
			if (rank == 1) {
				fork_child(end);
			}
			collective(end + 1);
		}
	}
	OK(allcast_cancel(pending));
	allcast_wait(pending, -1, NULL);
	OK(allcast_close(comm));
	return passed();
}
