/* Signals of a program without handlers. The argument is the number of a signal, "pipe" or "fault". */
#include <signal.h>
#include <unistd.h>

#include "test.h"

int main(int argc, char **argv) {
	CHECK(argc == 2);
	allcast_comm comm = join_alone();
	OK(allcast_barrier(comm, NULL));
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
