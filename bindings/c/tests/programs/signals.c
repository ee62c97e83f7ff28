/* Signals of a program that loads the library at run time. The arguments are the path of the library, and whether the
 * program installs its handlers before or after that. Handlers must get their signals on threads of the program. */
#include <allcast.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                  \
	do {                                                                                     \
		if (!(condition)) {                                                                     \
			fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);          \
			_Exit(1);                                                                              \
		}                                                                                       \
	} while (0)

static __typeof__(allcast_join) *join;
static __typeof__(allcast_rank) *rank_of;
static __typeof__(allcast_allreduce) *allreduce;
static __typeof__(allcast_close) *close_comm;
static __typeof__(allcast_set_parallelism) *set_parallelism;

static void load(const char *path) {
	void *library = dlopen(path, RTLD_NOW);
	if (library == NULL) {
		fprintf(stderr, "%s\n", dlerror());
		_Exit(1);
	}
	join = dlsym(library, "allcast_join");
	rank_of = dlsym(library, "allcast_rank");
	allreduce = dlsym(library, "allcast_allreduce");
	close_comm = dlsym(library, "allcast_close");
	set_parallelism = dlsym(library, "allcast_set_parallelism");
	CHECK(join != NULL && rank_of != NULL && allreduce != NULL && close_comm != NULL && set_parallelism != NULL);
	CHECK(set_parallelism(2) == ALLCAST_OK); /* the Go runtime has started */
}

/* ---- Handlers ---- */

static volatile sig_atomic_t counts[65];
static pid_t own_threads[2]; /* the main thread, and the one that makes collectives */
static volatile sig_atomic_t strangers;

static char *page; /* a page that the handler of SIGSEGV makes writable */
static long page_size;
static char alternate[1 << 16];
static volatile sig_atomic_t on_alternate;

static void handle(int sig, siginfo_t *info, void *context) {
	(void)context;
	volatile char room[12 << 10]; /* more than the stack of a goroutine has left */
	for (size_t i = 0; i < sizeof(room); i++) {
		room[i] = (char)sig;
	}
	counts[sig] = counts[sig] + 1;
	pid_t self = (pid_t)syscall(SYS_gettid);
	if (self != own_threads[0] && self != own_threads[1]) {
		strangers = strangers + 1;
	}
	if (sig == SIGSEGV) {
		char local;
		on_alternate = (uintptr_t)&local - (uintptr_t)alternate < sizeof(alternate);
		if (info->si_addr != page || mprotect(page, (size_t)page_size, PROT_READ | PROT_WRITE) != 0) {
			_Exit(9);
		}
	}
}

static const int handled[] = {SIGINT, SIGCHLD, SIGUSR1, SIGPIPE, SIGSEGV};

static void install(void) {
	stack_t stack = {.ss_sp = alternate, .ss_size = sizeof(alternate)};
	CHECK(sigaltstack(&stack, NULL) == 0);
	for (size_t i = 0; i < sizeof(handled) / sizeof(handled[0]); i++) {
		/* As many programs do: no SA_ONSTACK, except for the signal that may come from a stack overflow. */
		struct sigaction a = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_RESTART};
		if (handled[i] == SIGSEGV) {
			a.sa_flags |= SA_ONSTACK;
		}
		CHECK(sigaction(handled[i], &a, NULL) == 0);
	}
}

/* ---- Checks ---- */

/* Sends a signal many times, in turn to the process and to the thread that makes collectives, and waits for the handler
 * each time. */
static void storm(int sig, pthread_t thread) {
	for (int i = 0; i < 600; i++) {
		int before = counts[sig];
		CHECK((i % 2 == 0 ? kill(getpid(), sig) : pthread_kill(thread, sig)) == 0);
		while (counts[sig] == before) {
			usleep(10);
		}
	}
}

static void child_ends(void) {
	int before = counts[SIGCHLD];
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		_exit(0);
	}
	while (counts[SIGCHLD] == before) {
		usleep(100);
	}
	CHECK(waitpid(pid, NULL, 0) == pid);
}

static void fault(void) {
	for (int i = 0; i < 50; i++) {
		int before = counts[SIGSEGV];
		CHECK(mprotect(page, (size_t)page_size, PROT_READ) == 0);
		*(volatile char *)page = (char)i;
		CHECK(counts[SIGSEGV] == before + 1 && *page == (char)i && on_alternate);
	}
}

static void broken_pipe(void) {
	int ends[2], before = counts[SIGPIPE];
	CHECK(pipe(ends) == 0 && close(ends[0]) == 0);
	CHECK(write(ends[1], "x", 1) == -1 && errno == EPIPE);
	CHECK(counts[SIGPIPE] == before + 1);
	close(ends[1]);
}

/* The threads of the library block the signals of the program. */
static void masks(void) {
	char name[300], line[200];
	int all = 0, blocked = 0;
	DIR *tasks = opendir("/proc/self/task");
	CHECK(tasks != NULL);
	for (struct dirent *e; (e = readdir(tasks)) != NULL;) {
		snprintf(name, sizeof(name), "/proc/self/task/%s/status", e->d_name);
		FILE *f = e->d_name[0] == '.' ? NULL : fopen(name, "r");
		if (f == NULL) {
			continue; /* it has ended */
		}
		while (fgets(line, sizeof(line), f) != NULL) {
			unsigned long long mask;
			if (sscanf(line, "SigBlk: %llx", &mask) == 1) {
				all++;
				blocked += (mask >> (SIGUSR1 - 1) & 1) && (mask >> (SIGINT - 1) & 1) && !(mask >> (SIGSEGV - 1) & 1);
			}
		}
		fclose(f);
	}
	closedir(tasks);
	CHECK(blocked > 0 && all - blocked == 2);
}

static allcast_comm comm;
static volatile bool stop;
static pthread_barrier_t started;

/* Runs collectives meanwhile, so that the threads of the library are busy. */
static void *collectives(void *unused) {
	(void)unused;
	own_threads[1] = (pid_t)syscall(SYS_gettid);
	pthread_barrier_wait(&started);
	int going = 1;
	while (going > 0) { /* until all ranks stop */
		int mine = !stop;
		CHECK(allreduce(comm, &mine, &going, sizeof(mine), ALLCAST_INT32, ALLCAST_SUM, NULL) == ALLCAST_OK);
	}
	return NULL;
}

int main(int argc, char **argv) {
	CHECK(argc == 3);
	bool before = strcmp(argv[2], "before") == 0;
	page_size = sysconf(_SC_PAGESIZE);
	page = mmap(NULL, (size_t)page_size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(page != MAP_FAILED);
	own_threads[0] = (pid_t)syscall(SYS_gettid);
	sigset_t mask, now;
	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR2);
	CHECK(pthread_sigmask(SIG_SETMASK, &mask, NULL) == 0);
	if (before) {
		install();
		load(argv[1]);
	} else {
		load(argv[1]);
		install();
	}
	CHECK(pthread_sigmask(SIG_SETMASK, NULL, &now) == 0);
	CHECK(sigismember(&now, SIGUSR2) == 1 && sigismember(&now, SIGUSR1) == 0 && sigismember(&now, SIGINT) == 0);

	int rank;
	CHECK(join(0, NULL, &comm) == ALLCAST_OK && rank_of(comm, &rank) == ALLCAST_OK);
	pthread_t t;
	CHECK(pthread_barrier_init(&started, NULL, 2) == 0 && pthread_create(&t, NULL, collectives, NULL) == 0);
	pthread_barrier_wait(&started);
	storm(SIGUSR1, t);
	storm(SIGINT, t);
	child_ends();
	fault();
	broken_pipe();
	masks();
	stop = true;
	CHECK(pthread_join(t, NULL) == 0);
	CHECK(strangers == 0);
	CHECK(close_comm(comm) == ALLCAST_OK);
	fault();
	printf("rank %d passed\n", rank);
	return 0;
}
