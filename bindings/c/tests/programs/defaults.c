/* Signals of a program without handlers. The argument is the number of a signal, "pipe", "fault", "fork" or "log". */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

int main(int argc, char **argv) {
	CHECK(argc == 2);
	if (strcmp(argv[1], "log") == 0) {
		/* A log message to a broken pipe is lost, and the program continues. */
		int ends[2];
		signal(SIGPIPE, SIG_IGN);
		CHECK(pipe(ends) == 0 && close(ends[0]) == 0 && dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
		setenv("ALLCAST_DEBUG", "debug", 1);
		OK(allcast_close(join_alone()));
		return passed();
	}
	/* A parent may ignore a signal, as nohup does, and programs inherit that. */
	if (atoi(argv[1]) > 0) {
		signal(atoi(argv[1]), SIG_DFL);
	}
	allcast_comm comm = join_alone();
	OK(allcast_barrier(comm, NULL));
	if (strcmp(argv[1], "fork") == 0) {
		/* The handlers of the Go runtime do not work in a child, and are gone there. */
		static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGPIPE, SIGURG};
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (pid == 0) {
			for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
				struct sigaction a;
				if (sigaction(signals[i], NULL, &a) != 0 || a.sa_handler != SIG_DFL) {
					_exit(1);
				}
			}
			*(volatile char *)8 = 1;
			_exit(1);
		}
		int status;
		CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
		OK(allcast_close(comm));
		return passed();
	}
	if (strcmp(argv[1], "pipe") == 0) {
		int ends[2];
		CHECK(pipe(ends) == 0 && close(ends[0]) == 0);
		CHECK(write(ends[1], "x", 1) == 1); /* does not return */
	} else if (strcmp(argv[1], "fault") == 0) {
		*(volatile char *)8 = 1;
	} else {
		raise(atoi(argv[1]));
	}
	return passed();
}
