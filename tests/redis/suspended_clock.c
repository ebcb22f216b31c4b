// Simulates a machine that was suspended, on which the monotonic clock has stood still. Subtracts
// the nanoseconds in the file $QUORLOCK_SLEPT from the monotonic clock. Does not change the wall
// clock.

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *slept;

__attribute__((constructor)) static void map_file(void) {
    const char *path = getenv("QUORLOCK_SLEPT");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *map = mmap(0, sizeof *slept, PROT_READ, MAP_SHARED, file, 0);
    if (map != MAP_FAILED) slept = map;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && clock == CLOCK_MONOTONIC && slept) {
        int64_t now = time->tv_sec * 1000000000LL + time->tv_nsec - *slept;
        time->tv_sec = now / 1000000000LL;
        time->tv_nsec = now % 1000000000LL;
    }
    return result;
}
