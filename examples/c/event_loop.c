/* Overlaps broadcasts with other events in one loop of poll. Rank 0 broadcasts a block on each tick of a timer, and the
 * loop never blocks for the network. See the Makefile. */
#include <allcast.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { blocks = 8, block_bytes = 256 << 10 };

/* Ends the program if a call has failed. */
static void check(int code, const char *what) {
	if (code != ALLCAST_OK) {
		fprintf(stderr, "%s: %s\n", what, allcast_error_message());
		exit(1);
	}
}

int main(void) {
	static unsigned char data[blocks][block_bytes];
	allcast_comm comm;
	allcast_queue queue;
	int rank, fd;
	check(allcast_join(0, NULL, &comm), "join");
	check(allcast_rank(comm, &rank), "rank");
	check(allcast_queue_new(&queue), "queue");
	check(allcast_queue_fd(queue, &fd), "descriptor of the queue");

	int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	struct itimerspec tick = {.it_interval.tv_nsec = 2000000, .it_value.tv_nsec = 2000000};
	if (timer < 0 || timerfd_settime(timer, 0, &tick, NULL) != 0) {
		perror("timer");
		return 1;
	}

	struct pollfd events[] = {{.fd = timer, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
	int started = 0, arrived = 0;
	while (arrived < blocks) {
		if (poll(events, 2, -1) < 0) {
			perror("poll");
			return 1;
		}
		uint64_t ticks;
		if ((events[0].revents & POLLIN) != 0 && read(timer, &ticks, sizeof(ticks)) == sizeof(ticks) && started < blocks) {
			/* All ranks start the same operations in the same order, each at its own time. */
			if (rank == 0) {
				memset(data[started], started + 1, block_bytes);
			}
			allcast_call call = ALLCAST_CALL_INIT;
			call.queue = queue;
			call.user = (uint64_t)started;
			allcast_request request;
			check(allcast_start_broadcast(comm, data[started], block_bytes, 0, &call, &request), "start");
			started++;
		}
		if ((events[1].revents & POLLIN) != 0) {
			allcast_completion list[4];
			size_t n;
			check(allcast_queue_next(queue, list, 4, 0, &n), "next completion");
			for (size_t i = 0; i < n; i++) {
				check(allcast_wait(list[i].request, 0, NULL), "broadcast");
				int block = (int)list[i].user;
				if (data[block][0] != block + 1 || data[block][block_bytes - 1] != block + 1) {
					fprintf(stderr, "rank %d: block %d has wrong bytes\n", rank, block);
					return 1;
				}
				arrived++;
			}
		}
	}
	printf("rank %d received %d blocks\n", rank, arrived);
	close(timer);
	check(allcast_queue_free(queue), "free the queue");
	check(allcast_close(comm), "close");
	return 0;
}
