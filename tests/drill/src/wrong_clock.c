// Makes the wall clock of a server wrong: adds what the file $QUORLOCK_DRILL_CLOCK says. The drill
// may change the file at any time.

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct wrong {
    int64_t ahead; // in nanoseconds
    int64_t rate;  // in parts per million, counted from `since`
    int64_t since; // a time of CLOCK_MONOTONIC, in nanoseconds
};

static const volatile struct wrong *wrong;

__attribute__((constructor)) static void map_file(void) {
    const char *path = getenv("QUORLOCK_DRILL_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *map = mmap(0, sizeof *wrong, PROT_READ, MAP_SHARED, file, 0);
    if (map != MAP_FAILED) wrong = map;
    close(file);
}

static int64_t read_clock(clockid_t clock) {
    struct timespec time;
    syscall(SYS_clock_gettime, clock, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static int64_t wall(void) {
    int64_t now = read_clock(CLOCK_REALTIME);
    if (!wrong) return now;
    return now + wrong->ahead + (read_clock(CLOCK_MONOTONIC) - wrong->since) / 1000 * wrong->rate / 1000;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    if (clock != CLOCK_REALTIME) return syscall(SYS_clock_gettime, clock, time);
    int64_t now = wall();
    time->tv_sec = now / 1000000000LL;
    time->tv_nsec = now % 1000000000LL;
    return 0;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    (void)zone;
    int64_t now = wall() / 1000;
    time->tv_sec = now / 1000000LL;
    time->tv_usec = now % 1000000LL;
    return 0;
}

time_t time(time_t *out) {
    time_t now = wall() / 1000000000LL;
    if (out) *out = now;
    return now;
}
