/* Rank 1 ends without a word, or stops for a while, in the middle of collectives. Arguments: "kill", or "stop" and a
 * file in which rank 1 writes its process id. */
#include <signal.h>
#include <unistd.h>

#include "test.h"

enum { N = 100000 };

int main(int argc, char **argv) {
	char *buf = need(N), text[MPI_MAX_ERROR_STRING] = "";
	int code = MPI_SUCCESS, length;
	start(&argc, &argv, MPI_THREAD_SINGLE);
	if (argc < 2) {
		FAIL("want an argument");
	}
	bool kills = strcmp(argv[1], "kill") == 0;
	if (kills) {
		OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
	}
	for (int i = 0; i < 20 && code == MPI_SUCCESS; i++) {
		int root = i % size == 1 ? 0 : i % size;
		if (i == 10 && rank == 1) {
			if (kills) {
				raise(SIGKILL);
			}
			FILE *f = fopen(argv[2], "w");
			CHECK(f != NULL);
			fprintf(f, "%d\n", (int)getpid());
			CHECK(fclose(f) == 0);
			raise(SIGSTOP); /* the driver continues this process */
		}
		fill(buf, rank == root ? i : 99, root, N);
		code = MPI_Bcast(buf, N, MPI_BYTE, root, MPI_COMM_WORLD);
		CHECK(code != MPI_SUCCESS || holds(buf, i, root, N));
	}
	if (!kills) {
		OK(code);
		free(buf);
		return passed();
	}
	CHECK(code != MPI_SUCCESS);
	OK(MPI_Error_string(code, text, &length));
	printf("rank %d got: %s\n", rank, text);
	fflush(stdout);
	MPI_Abort(MPI_COMM_WORLD, 3);
}
