// Makes the wall clock wrong: adds the nanoseconds in the file $QUORLOCK_AHEAD, and makes the clock
// gain $QUORLOCK_GAIN milliseconds in 1,000 s. The test may change the file at any time.

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *ahead;
static int64_t gain, start;

static int64_t real_time(void) {
    struct timespec time;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static int64_t wrong_time(void) {
    int64_t now = real_time();
    return now + (ahead ? *ahead : 0) + (now - start) / 1000000 * gain;
}

__attribute__((constructor)) static void read_settings(void) {
    const char *text = getenv("QUORLOCK_GAIN");
    gain = text ? atoll(text) : 0;
    start = real_time();
    const char *path = getenv("QUORLOCK_AHEAD");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *map = mmap(0, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
    if (map != MAP_FAILED) ahead = map;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && clock == CLOCK_REALTIME) {
        int64_t now = wrong_time();
        time->tv_sec = now / 1000000000LL;
        time->tv_nsec = now % 1000000000LL;
    }
    return result;
}

// Servers read this clock.
int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    (void)zone;
    int64_t now = wrong_time();
    time->tv_sec = now / 1000000000LL;
    time->tv_usec = now % 1000000000LL / 1000;
    return 0;
}
