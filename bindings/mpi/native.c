#define _GNU_SOURCE
#include "native.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct native native;

/* Finds liballcast.so: where ALLCAST_LIBRARY says, next to this object, one directory above, or on the loader's path. */
static void find(char *path, size_t length) {
	const char *named = getenv("ALLCAST_LIBRARY");
	if (named != NULL && named[0] != '\0') {
		snprintf(path, length, "%s", named);
		return;
	}
	Dl_info self;
	const char *slash = dladdr((void *)find, &self) != 0 ? strrchr(self.dli_fname, '/') : NULL;
	static const char *const places[] = {"liballcast.so", "../liballcast.so"};
	for (size_t i = 0; slash != NULL && i < sizeof(places) / sizeof(places[0]); i++) {
		snprintf(path, length, "%.*s/%s", (int)(slash - self.dli_fname), self.dli_fname, places[i]);
		if (access(path, R_OK) == 0) {
			return;
		}
	}
	snprintf(path, length, "liballcast.so.%d", ALLCAST_ABI);
}

bool load_native(char *message, size_t length) {
	char path[4096];
	find(path, sizeof(path));
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (library == NULL) {
		snprintf(message, length, "cannot load %s: %s: set ALLCAST_LIBRARY to the path of liballcast.so", path, dlerror());
		return false;
	}
#define F(name)                                                                                       \
	native.name = (__typeof__(native.name))dlsym(library, "allcast_" #name);                             \
	if (native.name == NULL) {                                                                           \
		snprintf(message, length, "%s lacks allcast_%s: build both libraries from one version", path, #name); \
		return false;                                                                                       \
	}
	NATIVE(F)
#undef F
	if (native.abi() != ALLCAST_ABI) {
		snprintf(message, length, "%s has version %d of the interface, want %d", path, native.abi(), ALLCAST_ABI);
		return false;
	}
	return true;
}
