/* Reads over HTTP/1.1 from one server on this machine, over keep-alive connections, each answer checked.
 *
 *   loadgen PORT CONNECTIONS RATE SECONDS FILE
 *
 * RATE requests per second are due at even distances, and a latency counts from when its request was due, not from when
 * a connection became free for it: a server that stalls cannot hide it. RATE 0: each connection asks again as soon as
 * it was answered (closed loop). FILE holds what is asked in turn: per entry two little-endian u32, the lengths of the
 * request and of what the answer's body must begin with, then both. An answer without status 200 has failed, as has
 * one that does not come within 2 s after the end or whose connection breaks; one with another body is wrong. What was
 * due but found no free connection until then was not asked.
 * Prints one line of JSON; latencies in microseconds.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define BUFFER_BYTES (1 << 20)
#define GRACE_NS 2000000000LL
#define EVENTS 256

typedef struct { uint32_t ask_bytes, expect_bytes; const char *ask, *expect; } Entry;
typedef struct { int fd, is_busy; int64_t since_ns; size_t have_bytes; const Entry *entry; char *buffer; } Connection;

static Entry *entries;
static size_t entry_count, next_entry;
static Connection *connections;
static int *free_stack, free_count, epoll, port;
static uint32_t *latencies;
static size_t answered, most_answers, failed, wrong, issued;
static char first_failure[200];

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void die(const char *what) { perror(what); exit(2); }

static void *zeroed(size_t count, size_t size) {
    void *made = calloc(count, size);
    if (made == NULL) die("memory");
    return made;
}

static void load(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) die(path);
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file), at = 0;
    rewind(file);
    char *content = zeroed(size + 1, 1);
    if (fread(content, 1, size, file) != size) die(path);
    fclose(file);
    entries = zeroed(size / 8 + 1, sizeof(Entry));
    while (at < size) {
        Entry *entry = &entries[entry_count++];
        memcpy(&entry->ask_bytes, content + at, 4);
        memcpy(&entry->expect_bytes, content + at + 4, 4);
        entry->ask = content + at + 8;
        entry->expect = entry->ask + entry->ask_bytes;
        at += 8 + (size_t)entry->ask_bytes + entry->expect_bytes;
    }
    if (entry_count == 0) { fprintf(stderr, "%s holds no request\n", path); exit(2); }
}

static void join(int number) {
    Connection *connection = &connections[number];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connection->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connection->fd < 0 || connect(connection->fd, (struct sockaddr *)&address, sizeof address) != 0) die("connect");
    int yes = 1;
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)number};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, connection->fd, &event) != 0) die("epoll_ctl");
}

static void note_failure(const char *what, size_t bytes) {
    failed++;
    if (first_failure[0] != 0) return;
    for (size_t i = 0; i < bytes && i < sizeof first_failure - 1; i++)
        first_failure[i] = what[i] < ' ' || what[i] > '~' || what[i] == '"' || what[i] == '\\' ? ' ' : what[i];
}

static void release(int number) {
    connections[number].is_busy = 0;
    free_stack[free_count++] = number;
}

static void ask(int number, int64_t since_ns) {
    Connection *connection = &connections[number];
    connection->entry = &entries[next_entry++ % entry_count];
    connection->since_ns = since_ns;
    connection->have_bytes = 0;
    connection->is_busy = 1;
    issued++;
    size_t sent = 0;
    while (sent < connection->entry->ask_bytes) {
        ssize_t part = send(connection->fd, connection->entry->ask + sent, connection->entry->ask_bytes - sent, MSG_NOSIGNAL);
        if (part < 0 && errno == EINTR) continue;
        if (part < 0) return; /* the read that follows sees the broken connection */
        sent += (size_t)part;
    }
}

/* How long the body is that a head announces. */
static size_t body_bytes(const char *head, const char *end) {
    static const char name[] = "\r\ncontent-length:";
    for (const char *at = head; at + sizeof name < end; at++)
        if (*at == '\r' && strncasecmp(at, name, sizeof name - 1) == 0) return strtoul(at + sizeof name - 1, NULL, 10);
    return 0;
}

static void receive(int number) {
    Connection *connection = &connections[number];
    ssize_t part = recv(connection->fd, connection->buffer + connection->have_bytes, BUFFER_BYTES - connection->have_bytes, MSG_DONTWAIT);
    if (part < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (part <= 0) {
        close(connection->fd);
        join(number);
        if (connection->is_busy) { note_failure("the connection broke", 20); release(number); }
        return;
    }
    connection->have_bytes += (size_t)part;
    const char *head = connection->buffer, *end = memmem(head, connection->have_bytes, "\r\n\r\n", 4);
    if (end == NULL) return;
    const char *body = end + 4;
    size_t announced = body_bytes(head, body);
    if ((size_t)(body - head) + announced > connection->have_bytes) return;
    int64_t took_us = (now_ns() - connection->since_ns) / 1000;
    if (answered < most_answers) latencies[answered++] = took_us > UINT32_MAX ? UINT32_MAX : (uint32_t)took_us;
    const Entry *entry = connection->entry;
    if (strncmp(head + 8, " 200", 4) != 0) note_failure(head, connection->have_bytes);
    else if (announced < entry->expect_bytes || memcmp(body, entry->expect, entry->expect_bytes) != 0) wrong++;
    release(number);
}

static int ascending(const void *left, const void *right) {
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static uint32_t quantile(double share) {
    if (answered == 0) return 0;
    size_t at = (size_t)(share * (double)answered);
    return latencies[at < answered ? at : answered - 1];
}

static void tell(int64_t took_ns, size_t unasked) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double processor = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    qsort(latencies, answered, sizeof *latencies, ascending);
    printf("{\"requests\": %zu, \"unasked\": %zu, \"failed\": %zu, \"wrong\": %zu, \"seconds\": %.4f, \"p50_us\": %u, \"p99_us\": %u, "
           "\"p999_us\": %u, \"max_us\": %u, \"processor_seconds\": %.4f, \"first_failure\": \"%s\"}\n",
           issued, unasked, failed, wrong, (double)took_ns / 1e9, quantile(0.5), quantile(0.99), quantile(0.999), quantile(1.0),
           processor, first_failure);
}

int main(int count, char **given) {
    if (count != 6) { fprintf(stderr, "usage: loadgen PORT CONNECTIONS RATE SECONDS FILE\n"); return 2; }
    port = atoi(given[1]);
    int connection_count = atoi(given[2]);
    double rate = atof(given[3]), seconds = atof(given[4]);
    load(given[5]);
    most_answers = (size_t)((rate > 0 ? rate : 1e6) * seconds) + 1000;
    latencies = zeroed(most_answers, sizeof *latencies);
    connections = zeroed((size_t)connection_count, sizeof *connections);
    free_stack = zeroed((size_t)connection_count, sizeof *free_stack);
    epoll = epoll_create1(0);
    prctl(PR_SET_TIMERSLACK, 1UL); /* otherwise each wait takes 50 us longer, in every latency */
    for (int i = 0; i < connection_count; i++) {
        connections[i].buffer = zeroed(BUFFER_BYTES, 1);
        join(i);
        release(i);
    }
    int64_t begin = now_ns(), end = begin + (int64_t)(seconds * 1e9), now = begin;
    size_t total = rate > 0 ? (size_t)(rate * seconds) : SIZE_MAX;
    struct epoll_event events[EVENTS];
    while (now < end + GRACE_NS) {
        while (free_count > 0 && issued < total && (rate > 0 || now < end)) {
            int64_t due = rate > 0 ? begin + (int64_t)((double)issued / rate * 1e9) : now;
            if (due > now) break;
            ask(free_stack[--free_count], due);
        }
        int is_over = rate > 0 ? issued == total : now >= end;
        if (is_over && free_count == connection_count) break;
        int64_t until = rate > 0 && !is_over && free_count > 0 ? begin + (int64_t)((double)issued / rate * 1e9) : now + 10000000;
        int64_t wait = until > now ? until - now : 0;
        struct timespec timeout = {.tv_sec = wait / 1000000000LL, .tv_nsec = wait % 1000000000LL};
        int ready = epoll_pwait2(epoll, events, EVENTS, &timeout, NULL);
        for (int i = 0; i < ready; i++) receive((int)events[i].data.u32);
        now = now_ns();
    }
    for (int i = 0; i < connection_count; i++)
        if (connections[i].is_busy) note_failure("not answered in time", 20);
    tell(now - begin, rate > 0 ? total - issued : 0);
    return 0;
}
