/* Bends fsync and fdatasync of append-only files (names with ".aof" in them): each may be told to take long, and how
   much of a file has reached the disk is written down.

   FSYNC_SHIM is a file of 8 + 8 bytes that is mapped: how many ms a sync is to take (changed while it runs), and how
   many syncs are waiting now. Beside it, in FSYNC_SHIM.sizes, a line for each sync that has ended: the size that the
   file had when the sync began, and its name. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct told {
    _Atomic int64_t milliseconds;
    _Atomic int64_t waiting;
};

static struct told *told;
static int sizes = -1;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FSYNC_SHIM");
    char beside[4096];
    int file;
    if (path == NULL || (file = open(path, O_RDWR | O_CLOEXEC)) < 0)
        return;
    void *mapped = mmap(NULL, sizeof(struct told), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED)
        return;
    snprintf(beside, sizeof beside, "%s.sizes", path);
    sizes = open(beside, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    told = mapped;
}

/* Sleep for as long as is told, looking every ms whether it is told less. */
static void linger(void) {
    struct timespec one = {0, 1000000};
    int64_t gone = 0;
    told->waiting++;
    while (gone++ < told->milliseconds)
        nanosleep(&one, NULL);
    told->waiting--;
}

static int bent(const char *function, int file) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, function);
    char link[64], name[4096], line[4200];
    struct stat is;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = told == NULL ? -1 : readlink(link, name, sizeof name - 1);
    if (length < 0)
        return real(file);
    name[length] = 0;
    if (strstr(name, ".aof") == NULL || fstat(file, &is) != 0)
        return real(file);
    linger();
    int answer = real(file);
    if (answer == 0 && sizes >= 0) {
        length = snprintf(line, sizeof line, "%lld %s\n", (long long)is.st_size, name);
        if (write(sizes, line, (size_t)length) < 0)
            return -1;
    }
    return answer;
}

int fsync(int file) {
    return bent("fsync", file);
}

int fdatasync(int file) {
    return bent("fdatasync", file);
}
