/* Broadcasts a buffer from rank 0 to all ranks, and gathers one number of each rank. See the Makefile. */
#include <allcast.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program if a call has failed. */
static void check(int code, const char *what) {
	if (code != ALLCAST_OK) {
		fprintf(stderr, "%s: %s\n", what, allcast_error_message());
		exit(1);
	}
}

int main(void) {
	allcast_comm comm;
	check(allcast_join(0, NULL, &comm), "join");
	int rank, size;
	check(allcast_rank(comm, &rank), "rank");
	check(allcast_size(comm, &size), "size");

	size_t bytes = 1 << 20;
	unsigned char *weights = malloc(bytes);
	int *sums = malloc((size_t)size * sizeof(int));
	if (weights == NULL || sums == NULL) {
		fprintf(stderr, "out of memory\n");
		return 1;
	}
	memset(weights, rank == 0 ? 3 : 0, bytes);
	check(allcast_broadcast(comm, weights, bytes, 0, NULL), "broadcast");

	int sum = 0;
	for (size_t i = 0; i < bytes; i++) {
		sum += weights[i];
	}
	check(allcast_allgather(comm, &sum, sums, sizeof(sum), NULL), "allgather");
	if (rank == 0) {
		for (int i = 0; i < size; i++) {
			printf("rank %d received bytes with the sum %d\n", i, sums[i]);
		}
	}
	free(weights);
	free(sums);
	check(allcast_close(comm), "close");
	return 0;
}
