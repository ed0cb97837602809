/* For LD_PRELOAD: a wall clock that a test moves, and a disk that takes its time.

   The file named by CLOCK_SHIM holds two 64 bit numbers of nanoseconds: what is added to the wall clock, and how
   long every fsync and fdatasync takes longer. The monotonic clock is left alone: it never jumps. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t none[2];
static const volatile int64_t *shared = none;
static int (*real_gettime)(clockid_t, struct timespec *);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);

__attribute__((constructor)) static void load(void) {
    real_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    real_fsync = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    const char *path = getenv("CLOCK_SHIM");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *page = mmap(NULL, sizeof none, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (page != MAP_FAILED) shared = page;
}

int clock_gettime(clockid_t id, struct timespec *at) {
    if (!real_gettime) load();
    int failed = real_gettime(id, at);
    int64_t shift = shared[0];
    if (!failed && shift && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        int64_t nanos = at->tv_nsec + shift % 1000000000;
        at->tv_sec += shift / 1000000000;
        if (nanos >= 1000000000) { nanos -= 1000000000; at->tv_sec++; }
        if (nanos < 0) { nanos += 1000000000; at->tv_sec--; }
        at->tv_nsec = nanos;
    }
    return failed;
}

int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    (void)zone;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    if (!failed && at) { at->tv_sec = now.tv_sec; at->tv_usec = now.tv_nsec / 1000; }
    return failed;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}

static void take_time(void) {
    int64_t delay = shared[1];
    struct timespec rest = {delay / 1000000000, delay % 1000000000};
    if (delay > 0) nanosleep(&rest, NULL);
}

int fsync(int fd) { take_time(); return real_fsync(fd); }
int fdatasync(int fd) { take_time(); return real_fdatasync(fd); }
