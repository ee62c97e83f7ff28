/* The library as a guest in a process: loading, signals, fork and exit. */
#ifndef ALLCAST_PROCESS_H
#define ALLCAST_PROCESS_H

#include <stdbool.h>

/* Reports whether this process is a child that was forked after the library was loaded. */
bool is_forked(void);

#endif
