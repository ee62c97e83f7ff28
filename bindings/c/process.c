#include "process.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "_cgo_export.h"
#include "internal.h"

char library_version[32];

static atomic_bool forked;

bool is_forked(void) { return atomic_load_explicit(&forked, memory_order_relaxed); }

/* Signals for which the Go runtime installs a handler when a library is loaded. */
static const int go_signals[] = {SIGBUS, SIGFPE, SIGSEGV, SIGPIPE, SIGURG};

#define GO_SIGNALS (sizeof(go_signals) / sizeof(go_signals[0]))

static struct sigaction before[GO_SIGNALS], installed[GO_SIGNALS];
static sigset_t loader_mask;

struct socket_entry sockets[MAX_SOCKETS];

/* Closes connections of the parent. If the parent is killed, the other ranks would otherwise take it for alive as long
 * as the child lives. A number that the program uses for another file by now has another inode. */
static void close_sockets(void) {
	for (size_t i = 0; i < MAX_SOCKETS; i++) {
		struct socket_entry *e = &sockets[i];
		struct stat s;
		if (e->inode != 0 && fstat((int)e->fd, &s) == 0 && S_ISSOCK(s.st_mode) && s.st_ino == e->inode &&
			s.st_dev == e->device) {
			close((int)e->fd);
		}
	}
}

/* Runs in a forked child. Only the thread that called fork exists there, so the Go runtime does not work, and its
 * handlers of signals do not either. Handlers that the program has installed since stay. */
static void after_fork(void) {
	atomic_store_explicit(&forked, true, memory_order_relaxed);
	close_sockets();
	for (size_t i = 0; i < GO_SIGNALS; i++) {
		struct sigaction now;
		if (sigaction(go_signals[i], NULL, &now) == 0 && now.sa_sigaction == installed[i].sa_sigaction) {
			sigaction(go_signals[i], &before[i], NULL);
		}
	}
}

/* Sets the mask that threads of the library inherit, and returns the one before. Signals for the program are thus
 * delivered to the program's own threads: a handler without SA_ONSTACK would overflow the small stack of a goroutine. */
static sigset_t block_signals(void) {
	/* Faults, the preemption of Go, and profilers, which time all threads. SIGPIPE is blocked, so that a program that
	 * resets it does not die when a thread of the runtime writes to a connection that another rank has closed. */
	static const int unblocked[] = {SIGBUS, SIGFPE, SIGSEGV, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGURG, SIGPROF};
	sigset_t mask, old;
	sigfillset(&mask);
	for (size_t i = 0; i < sizeof(unblocked) / sizeof(unblocked[0]); i++) {
		sigdelset(&mask, unblocked[i]);
	}
	pthread_sigmask(SIG_SETMASK, &mask, &old);
	return old;
}

/* Runs before the Go runtime starts, because constructors with a priority come first. The thread of the runtime
 * inherits the mask, and the runtime gives it to all its threads. */
__attribute__((constructor(101))) static void before_go(void) {
	for (size_t i = 0; i < GO_SIGNALS; i++) {
		sigaction(go_signals[i], NULL, &before[i]);
	}
	loader_mask = block_signals();
}

/* Runs after the Go runtime has started its thread and installed its handlers. */
__attribute__((constructor)) static void after_go(void) {
	pthread_sigmask(SIG_SETMASK, &loader_mask, NULL);
	for (size_t i = 0; i < GO_SIGNALS; i++) {
		sigaction(go_signals[i], NULL, &installed[i]);
	}
	pthread_atfork(NULL, NULL, after_fork);
}

/* Sets the flag SA_ONSTACK, and reports whether a handler lacked it. */
static bool add_stack(struct sigaction *a) {
	if (a->sa_handler == SIG_DFL || a->sa_handler == SIG_IGN || (a->sa_flags & SA_ONSTACK) != 0) {
		return false;
	}
	a->sa_flags |= SA_ONSTACK;
	return true;
}

/* A thread inside the library runs on the small stack of a goroutine, and the Go runtime gives it an alternate stack
 * for signals. The runtime itself changes the handlers that exist when it is loaded. The program may have installed
 * others since. */
void use_alternate_stacks(void) {
	for (int sig = 1; sig < NSIG; sig++) {
		struct sigaction expected, wanted, replaced;
		if (sigaction(sig, NULL, &expected) != 0) {
			continue;
		}
		wanted = expected;
		bool missing = add_stack(&wanted);
		while (missing && sigaction(sig, &wanted, &replaced) == 0) {
			/* A handler that another thread has installed meanwhile must stay. */
			missing = replaced.sa_sigaction != expected.sa_sigaction || replaced.sa_flags != expected.sa_flags;
			expected = wanted;
			wanted = replaced;
			add_stack(&wanted);
		}
	}
}

static pid_t owner;

static void *leave(void *unused) {
	goExit();
	return unused;
}

/* Leaves all jobs on a new thread. The exiting thread may have lost its alternate stack for signals since it first
 * called the library: Python's faulthandler removes its own before the process exits. A signal would then end the
 * process, because the Go runtime handles none on the stack of a goroutine. */
static void at_exit(void) {
	if (is_forked() || getpid() != owner) { /* a child of vfork or clone runs no handlers of fork */
		return;
	}
	pthread_t thread;
	sigset_t mask = block_signals();
	bool started = pthread_create(&thread, NULL, leave, NULL) == 0;
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	if (started) {
		pthread_join(thread, NULL);
	}
}

static void register_exit(void) {
	owner = getpid();
	atexit(at_exit);
}

void leave_at_exit(void) {
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, register_exit);
}
