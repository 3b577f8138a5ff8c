/* A wall clock that a test bends while the process runs: put before the C library by LD_PRELOAD.
 *
 * DELAYQ_TEST_CLOCK names a file with three 64-bit numbers, which is mapped into memory: how far the clock is off (ns),
 * by how many parts in a million it runs too fast, and since when (Unix ns of the true clock). Only CLOCK_REALTIME and
 * what is made of it are bent; the monotonic clock, and so every wait, stays true, as when NTP steps or slews.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int (*true_clock)(clockid_t, struct timespec *);
static const volatile int64_t *bend;

static void prepare(void) {
    if (true_clock)
        return;
    const char *path = getenv("DELAYQ_TEST_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        void *found = mmap(NULL, 3 * sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
        close(file);
        if (found != MAP_FAILED)
            bend = found;
    }
    true_clock = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    prepare();
    int failed = true_clock(clock, out);
    if (failed || !bend || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return failed;
    int64_t now = (int64_t)out->tv_sec * 1000000000 + out->tv_nsec;
    int64_t bent = now + bend[0];
    if (bend[1])
        bent += (now - bend[2]) / 1000000 * bend[1];
    out->tv_sec = bent / 1000000000;
    out->tv_nsec = bent % 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return -1;
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return (time_t)-1;
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}
