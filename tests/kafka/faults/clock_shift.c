/* Loaded before the C library: the wall clock of a process is off by as many milliseconds as the file says that
 * CLOCK_SHIFT_FILE names; no file, no shift. Time that only passes (CLOCK_MONOTONIC) is left alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long long shift_ms(void) {
    const char *path = getenv("CLOCK_SHIFT_FILE");
    FILE *file = path == NULL ? NULL : fopen(path, "re");
    long long shift = 0;
    if (file == NULL) return 0;
    if (fscanf(file, "%lld", &shift) != 1) shift = 0;
    fclose(file);
    return shift;
}

static void move(struct timespec *time) {
    long long nanoseconds = time->tv_sec * 1000000000LL + time->tv_nsec + shift_ms() * 1000000LL;
    time->tv_sec = nanoseconds / 1000000000LL;
    time->tv_nsec = nanoseconds % 1000000000LL;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (real == NULL) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, time);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) move(time);
    return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}
