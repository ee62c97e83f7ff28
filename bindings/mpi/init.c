/* MPI_Init and MPI_Finalize: settings, which all ranks agree on, and the end of the job. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core.h"

struct process process;

/* Without ALLCAST_MPI_THRESHOLD, a communicator joins and measures when it has made several calls of this size. */
#define MEASURED_LEAST (16 << 10)
#define MEASURED_PATIENCE 3

/* Tag of the receive that never ends. Messages in the same communicator use tag 0. */
#define NEVER_TAG 1

void warn(const char *format, ...) {
	char text[2048];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	fprintf(stderr, "allcast: warning: %s\n", text);
}

/* What one rank finds in its environment. */
struct settings {
	bool off, stats, eager, aggregators, measures;
	int64_t threshold;
	char error[512];   /* invalid value: ends the job */
	char warning[512]; /* liballcast.so cannot be loaded: everything passes through */
};

/* Reads a number of bytes with the suffix K, M or G. */
static bool parse_bytes(const char *text, int64_t *bytes) {
	char *end;
	long long n = strtoll(text, &end, 10);
	static const char units[] = "KMG";
	if (end == text || n < 0) {
		return false;
	}
	const char *unit = *end == '\0' ? NULL : strchr(units, *end);
	int shift = unit == NULL ? 0 : 10 * (int)(unit - units + 1);
	end += unit != NULL;
	if (*end != '\0' || n > (INT64_MAX - 1) >> shift) {
		return false;
	}
	*bytes = (int64_t)n << shift;
	return true;
}

static bool is_set(const char *name) {
	const char *value = getenv(name);
	return value != NULL && value[0] != '\0';
}

static void parse_words(struct settings *s, const char *value) {
	char copy[256], *rest = NULL;
	snprintf(copy, sizeof(copy), "%s", value);
	for (char *word = strtok_r(copy, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
		if (strcmp(word, "stats") == 0) {
			s->stats = true;
		} else if (strcmp(word, "eager") == 0) {
			s->eager = true;
		} else if (strcmp(word, "off") == 0) {
			s->off = true;
		} else {
			snprintf(s->error, sizeof(s->error), "ALLCAST_MPI=%.200s: want stats, eager or off, separated by commas", value);
		}
	}
}

static struct settings read_settings(void) {
	struct settings s = {.measures = true, .threshold = MEASURED_LEAST, .aggregators = is_set("ALLCAST_AGGREGATORS")};
	const char *threshold = getenv("ALLCAST_MPI_THRESHOLD");
	if (is_set("ALLCAST_MPI")) {
		parse_words(&s, getenv("ALLCAST_MPI"));
	}
	if (is_set("ALLCAST_MPI_THRESHOLD") && strcmp(threshold, "auto") != 0) {
		s.measures = false;
		if (!parse_bytes(threshold, &s.threshold)) {
			snprintf(s.error, sizeof(s.error), "ALLCAST_MPI_THRESHOLD=%.200s: want bytes such as 64K, or auto", threshold);
		}
	}
	if (!s.off && s.error[0] == '\0') {
		s.off = !load_native(s.warning, sizeof(s.warning));
	}
	return s;
}

/* Passes a text from the lowest rank that has one to standard error of rank 0. It returns whether a rank has one. */
static bool report(char *text, size_t length, const char *label) {
	int mine = text[0] == '\0' ? process.size : process.rank, first;
	PMPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	if (first == process.size) {
		return false;
	}
	PMPI_Bcast(text, (int)length, MPI_CHAR, first, MPI_COMM_WORLD);
	if (process.rank == 0) {
		fprintf(stderr, "allcast: %srank %d: %s\n", label, first, text);
	}
	return true;
}

/* Agrees on settings and prepares the process. MPI_Init is collective over MPI_COMM_WORLD. */
static void prepare(void) {
	static atomic_bool prepared;
	if (atomic_exchange(&prepared, true)) {
		return; /* Fortran's MPI_INIT may call the one of C */
	}
	PMPI_Comm_rank(MPI_COMM_WORLD, &process.rank);
	PMPI_Comm_size(MPI_COMM_WORLD, &process.size);
	if (process.size == 1) {
		return;
	}
	struct settings s = read_settings();
	/* Each number is the maximum over all ranks. */
	int64_t mine[] = {s.off, s.stats, s.eager, !s.aggregators, !s.measures, s.threshold, s.error[0] != '\0' || s.warning[0] != '\0'};
	int64_t all[sizeof(mine) / sizeof(mine[0])];
	PMPI_Allreduce(mine, all, sizeof(mine) / sizeof(mine[0]), MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
	if (all[6]) {
		if (report(s.error, sizeof(s.error), "")) {
			PMPI_Barrier(MPI_COMM_WORLD); /* rank 0 has written the message */
			PMPI_Abort(MPI_COMM_WORLD, 2);
		}
		report(s.warning, sizeof(s.warning), "warning: calls pass through to MPI: ");
	}
	if (all[0]) {
		return;
	}
	process.stats = all[1];
	process.eager = all[2];
	process.aggregators = !all[3];
	process.measures = !all[4];
	process.threshold = all[5];
	process.patience = process.measures ? MEASURED_PATIENCE : 1;
	PMPI_Comm_group(MPI_COMM_WORLD, &process.world);
	PMPI_Comm_dup(MPI_COMM_SELF, &process.self);
	PMPI_Irecv(NULL, 0, MPI_BYTE, 0, NEVER_TAG, process.self, &process.never);
	if (make_keyval() != MPI_SUCCESS) {
		return;
	}
	atomic_store(&process.active, true);
	struct comm *world = process.eager ? comm_of(MPI_COMM_WORLD) : NULL;
	if (world != NULL && world->phase == FRESH) {
		join(world);
	}
}

int core_MPI_Init(int *argc, char ***argv) {
	int code = PMPI_Init(argc, argv);
	if (code == MPI_SUCCESS) {
		prepare();
	}
	return code;
}

int core_MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
	int code = PMPI_Init_thread(argc, argv, required, provided);
	if (code == MPI_SUCCESS) {
		prepare();
	}
	return code;
}

int core_MPI_Finalize(void) {
	if (atomic_load(&process.active)) {
		/* Other ranks may still need this one, for example if they are stopped. MPI waits for them here. */
		int broken = atomic_load(&process.broken), any_broken = 1;
		PMPI_Allreduce(&broken, &any_broken, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
		if (process.stats && !any_broken) {
			print_stats();
		}
		atomic_store(&process.active, false);
		close_jobs();
		forget_world();
		PMPI_Cancel(&process.never);
		PMPI_Wait(&process.never, MPI_STATUS_IGNORE);
		PMPI_Comm_free(&process.self);
		PMPI_Group_free(&process.world);
		PMPI_Comm_free_keyval(&process.keyval);
	}
	return PMPI_Finalize();
}

__attribute__((visibility("default"))) const struct core allcast_mpi_core = {
#define CALL(result, name, parameters, arguments) .name = core_##name,
	CALLS(CALL)
#undef CALL
#define FORTRAN(name, upper, mixed, parameters, arguments) .f_##name = core_f_##name,
		FORTRAN_CALLS(FORTRAN)
#undef FORTRAN
		.await_all = core_await_all,
	.test = core_test,
};
