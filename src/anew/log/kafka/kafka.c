/* Kafka for Python, over the librdkafka that confluent-kafka brings: records pass as columns, many in one call.
 *
 * Each function is called through ctypes.PyDLL, so with the interpreter's lock; what waits for a broker, or takes
 * long, gives it back meanwhile. A failure of the call itself sets the Python exception and returns NULL; what Kafka
 * says of records and partitions is returned as numbers, for Python to judge.
 *
 * It needs a C compiler and nothing else: of Python's stable interface and of librdkafka's it declares what it uses.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

/* -- Python's stable C interface -------------------------------------------------------------------------------- */

typedef struct Object Object;
extern void Py_IncRef(Object *);
extern void Py_DecRef(Object *);
extern Object *PyBytes_FromStringAndSize(const char *, ssize_t);
extern char *PyBytes_AsString(Object *);
extern Object *PyLong_FromLongLong(long long);
extern Object *PyList_New(ssize_t);
extern ssize_t PyList_Size(Object *);
extern Object *PyList_GetItem(Object *, ssize_t);
extern int PyList_Append(Object *, Object *);
extern void PyErr_SetString(Object *, const char *);
extern Object *PyErr_NoMemory(void);
extern void *PyEval_SaveThread(void);
extern void PyEval_RestoreThread(void *);

/* -- librdkafka's C interface ------------------------------------------------------------------------------------ */

typedef void Kafka; /* anything of librdkafka's that is passed on and never looked into */

typedef struct {
    int err;
    Kafka *topic;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *opaque;
} Message;

typedef struct {
    int type;
    union {
        Kafka *handle;
        int i;
        int32_t i32;
        int64_t i64;
        void *ptr;
        struct { const void *ptr; size_t size; } mem;
        struct { const char *name; const void *value; ssize_t size; } header;
        char padding[64];
    } u;
} Argument;

enum { PRODUCER, CONSUMER };
enum { OF_TOPIC = 2, OF_PARTITION, OF_VALUE, OF_KEY, OF_OPAQUE, OF_FLAGS, OF_TIME, OF_HEADER };
enum { COPY = 2, BLOCK = 4 };
enum { EVENT_DELIVERY = 1, EVENT_ERROR = 8 };
enum { NOT_PERSISTED, POSSIBLY_PERSISTED, PERSISTED };
enum { PARTITION_EOF = -191 };

#define LIBRDKAFKA(X) \
    X(Kafka *, conf_new, (void)) \
    X(int, conf_set, (Kafka *, const char *, const char *, char *, size_t)) \
    X(void, conf_destroy, (Kafka *)) \
    X(void, conf_set_opaque, (Kafka *, void *)) \
    X(void, conf_set_log_cb, (Kafka *, void (*)(const Kafka *, int, const char *, const char *))) \
    X(void, conf_set_events, (Kafka *, int)) \
    X(void, conf_set_background_event_cb, (Kafka *, void (*)(Kafka *, Kafka *, void *))) \
    X(Kafka *, new, (int, Kafka *, char *, size_t)) \
    X(void, destroy, (Kafka *)) \
    X(Kafka *, queue_get_main, (Kafka *)) \
    X(Kafka *, queue_get_background, (Kafka *)) \
    X(void, queue_forward, (Kafka *, Kafka *)) \
    X(void, queue_destroy, (Kafka *)) \
    X(Kafka *, queue_get_partition, (Kafka *, const char *, int32_t)) \
    X(size_t, queue_length, (Kafka *)) \
    X(int, last_error, (void)) \
    X(const char *, err2str, (int)) \
    X(const char *, err2name, (int)) \
    X(Kafka *, topic_new, (Kafka *, const char *, Kafka *)) \
    X(void, topic_destroy, (Kafka *)) \
    X(const char *, topic_name, (const Kafka *)) \
    X(int, get_watermark_offsets, (Kafka *, const char *, int32_t, int64_t *, int64_t *)) \
    X(int, consume_start, (Kafka *, int32_t, int64_t)) \
    X(int, consume_stop, (Kafka *, int32_t)) \
    X(Message *, consume, (Kafka *, int32_t, int)) \
    X(ssize_t, consume_batch, (Kafka *, int32_t, int, Message **, size_t)) \
    X(void, message_destroy, (Message *)) \
    X(int64_t, message_timestamp, (const Message *, int *)) \
    X(int, message_status, (const Message *)) \
    X(int, message_headers, (const Message *, Kafka **)) \
    X(int, header_get_all, (const Kafka *, size_t, const char **, const void **, size_t *)) \
    X(Kafka *, produceva, (Kafka *, const Argument *, size_t)) \
    X(int, error_code, (const Kafka *)) \
    X(void, error_destroy, (Kafka *)) \
    X(int, purge, (Kafka *, int)) \
    X(int, flush, (Kafka *, int)) \
    X(int, event_type, (const Kafka *)) \
    X(const Message *, event_message_next, (Kafka *)) \
    X(int, event_error, (Kafka *)) \
    X(const char *, event_error_string, (Kafka *)) \
    X(void, event_destroy, (Kafka *))

#define DECLARE(result, name, arguments) static result(*rd_kafka_##name) arguments;
LIBRDKAFKA(DECLARE)

static Object *kafka_error;

/* Find librdkafka's functions among what a library depends on; `failed` is the exception to raise. */
int kafka_bind(const char *library, Object *failed) {
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        PyErr_SetString(failed, dlerror());
        return -1;
    }
#define FIND(result, name, arguments) \
    *(void **)&rd_kafka_##name = dlsym(handle, "rd_kafka_" #name); \
    if (rd_kafka_##name == NULL) { PyErr_SetString(failed, "the library lacks rd_kafka_" #name); return -1; }
    LIBRDKAFKA(FIND)
    Py_IncRef(kafka_error = failed);
    return 0;
}

/* -- clients ------------------------------------------------------------------------------------------------------ */

typedef struct {
    Kafka *handle;
    pthread_mutex_t sending; /* one call's records lie side by side in their partition */
    pthread_mutex_t lock;
    pthread_cond_t told; /* of deliveries */
    int said_error;
    char said[512]; /* the last that librdkafka said of brokers that do not answer, or turn us away */
} Client;

/* What became of one call's records; shared by who waits and by librdkafka's thread, freed by the last. */
typedef struct {
    Client *client;
    size_t users;
    size_t landed, lost, unknown;
    int64_t first, last, last_ms, least_ms;
    int error;
} Delivery;

static void leave(Delivery *delivery) {
    if (--delivery->users == 0) free(delivery);
}

static void note(Delivery *delivery, const Message *message) {
    if (message->err == 0) {
        delivery->landed++;
        if (delivery->first < 0 || message->offset < delivery->first) delivery->first = message->offset;
        int64_t ms = rd_kafka_message_timestamp(message, NULL);
        if (delivery->landed == 1 || ms < delivery->least_ms) delivery->least_ms = ms;
        if (message->offset > delivery->last) delivery->last = message->offset, delivery->last_ms = ms;
        return;
    }
    delivery->error = message->err;
    if (rd_kafka_message_status(message) == NOT_PERSISTED) delivery->lost++;
    else delivery->unknown++;
}

static void on_event(Kafka *handle, Kafka *event, void *opaque) {
    Client *client = opaque;
    (void)handle;
    pthread_mutex_lock(&client->lock);
    if (rd_kafka_event_type(event) == EVENT_DELIVERY) {
        const Message *message;
        while ((message = rd_kafka_event_message_next(event)) != NULL) {
            Delivery *delivery = message->opaque;
            note(delivery, message);
            leave(delivery);
        }
        pthread_cond_broadcast(&client->told);
    } else if (rd_kafka_event_type(event) == EVENT_ERROR) {
        client->said_error = rd_kafka_event_error(event);
        snprintf(client->said, sizeof client->said, "%s", rd_kafka_event_error_string(event));
    }
    pthread_mutex_unlock(&client->lock);
    rd_kafka_event_destroy(event);
}

static void init_monotonic(pthread_cond_t *told) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(told, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

/* A client with settings: name, value, name, value … as bytes. */
void *kafka_client(int is_producer, Object *settings) {
    char said[512] = "";
    Kafka *conf = rd_kafka_conf_new();
    for (ssize_t i = 0; i + 1 < PyList_Size(settings); i += 2) {
        const char *name = PyBytes_AsString(PyList_GetItem(settings, i));
        const char *value = PyBytes_AsString(PyList_GetItem(settings, i + 1));
        if (name == NULL || value == NULL) goto failed;
        if (rd_kafka_conf_set(conf, name, value, said, sizeof said) != 0) {
            PyErr_SetString(kafka_error, said);
            goto failed;
        }
    }
    Client *client = calloc(1, sizeof *client);
    if (client == NULL) {
        PyErr_NoMemory();
        goto failed;
    }
    init_monotonic(&client->told);
    pthread_mutex_init(&client->sending, NULL);
    pthread_mutex_init(&client->lock, NULL);
    rd_kafka_conf_set_log_cb(conf, NULL);
    rd_kafka_conf_set_opaque(conf, client);
    rd_kafka_conf_set_events(conf, is_producer ? EVENT_DELIVERY | EVENT_ERROR : EVENT_ERROR);
    rd_kafka_conf_set_background_event_cb(conf, on_event);
    client->handle = rd_kafka_new(is_producer ? PRODUCER : CONSUMER, conf, said, sizeof said);
    if (client->handle != NULL) { /* which owns the settings now */
        Kafka *events = rd_kafka_queue_get_main(client->handle), *background = rd_kafka_queue_get_background(client->handle);
        rd_kafka_queue_forward(events, background);
        rd_kafka_queue_destroy(background);
        rd_kafka_queue_destroy(events);
        return client;
    }
    PyErr_SetString(kafka_error, said);
    free(client);
failed:
    rd_kafka_conf_destroy(conf);
    return NULL;
}

enum { ENDING_SECONDS = 5 };

/* A client on its way out; freed by the last of who waits and who ends it. */
typedef struct {
    Client *client;
    pthread_mutex_t lock;
    pthread_cond_t told;
    int users, ended;
} Ending;

static void leave_ending(Ending *ending) { /* takes the lock with it */
    int users = --ending->users;
    pthread_mutex_unlock(&ending->lock);
    if (users) return;
    pthread_cond_destroy(&ending->told);
    pthread_mutex_destroy(&ending->lock);
    free(ending);
}

static void *end_client(void *of) {
    Ending *ending = of;
    Client *client = ending->client;
    rd_kafka_purge(client->handle, 3);
    rd_kafka_flush(client->handle, 1000);
    rd_kafka_destroy(client->handle);
    pthread_cond_destroy(&client->told);
    pthread_mutex_destroy(&client->lock);
    pthread_mutex_destroy(&client->sending);
    free(client);
    pthread_mutex_lock(&ending->lock);
    ending->ended = 1;
    pthread_cond_signal(&ending->told);
    leave_ending(ending);
    return NULL;
}

/* Let a client go, after everybody has left it; what it has not sent is given up.
 *
 * librdkafka may wait for ever for one whose brokers died and came back (its issues 4131 and 4674, still open): then
 * it is left to itself. */
void kafka_close(Client *client) {
    Ending *ending = calloc(1, sizeof *ending);
    pthread_t thread;
    if (ending == NULL) return;
    ending->client = client;
    ending->users = 2;
    pthread_mutex_init(&ending->lock, NULL);
    init_monotonic(&ending->told);
    if (pthread_create(&thread, NULL, end_client, ending) != 0) return;
    pthread_detach(thread);
    void *released = PyEval_SaveThread();
    struct timespec deadline;
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_sec += ENDING_SECONDS;
    pthread_mutex_lock(&ending->lock);
    while (!ending->ended && pthread_cond_timedwait(&ending->told, &ending->lock, &deadline) == 0) {}
    leave_ending(ending);
    PyEval_RestoreThread(released);
}

/* What was said last of brokers, and forget it; empty when nothing was. */
Object *kafka_said(Client *client) {
    char said[sizeof client->said + 64] = "";
    pthread_mutex_lock(&client->lock);
    if (client->said[0]) snprintf(said, sizeof said, "%s: %s", rd_kafka_err2name(client->said_error), client->said);
    client->said[0] = '\0';
    pthread_mutex_unlock(&client->lock);
    return PyBytes_FromStringAndSize(said, (ssize_t)strlen(said));
}

/* The name of an error, such as MSG_SIZE_TOO_LARGE, and what it means. */
Object *kafka_error_words(int error) {
    char words[512];
    snprintf(words, sizeof words, "%s: %s", rd_kafka_err2name(error), rd_kafka_err2str(error));
    return PyBytes_FromStringAndSize(words, (ssize_t)strlen(words));
}

/* -- the wire ----------------------------------------------------------------------------------------------------- */

#define WRITTEN_AT "anew-written-at"
#define ORIGIN "anew-origin"
#define APPEND "anew-append"
#define PROBE "anew-probe"
enum { MAGIC = 0, HEADER_BYTES = 5 };

/* A magic byte and the schema's id in network order before the body. */
static void put_header(unsigned char *at, int32_t schema_id) {
    at[0] = MAGIC;
    for (int i = 0; i < 4; i++) at[1 + i] = (unsigned char)((uint32_t)schema_id >> (24 - 8 * i));
}

static int has_header(const void *data, size_t size) {
    return size >= HEADER_BYTES && ((const unsigned char *)data)[0] == MAGIC;
}

static int32_t schema_of(const void *data) {
    const unsigned char *at = data;
    return (int32_t)((uint32_t)at[1] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 8 | at[4]);
}

/* -- appending ---------------------------------------------------------------------------------------------------- */

typedef struct {
    const int32_t *ends; /* count + 1 offsets */
    const char *data;
} Binary;

static size_t size_at(const Binary *column, size_t row) {
    return (size_t)(column->ends[row + 1] - column->ends[row]);
}

static const char *data_at(const Binary *column, size_t row) {
    return column->data + column->ends[row];
}

static size_t widest(const Binary *column, size_t count) {
    size_t most = 0;
    for (size_t row = 0; row < count; row++)
        if (size_at(column, row) > most) most = size_at(column, row);
    return most;
}

static struct timespec after_ms(int64_t ms) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += ms / 1000;
    at.tv_nsec += ms % 1000 * 1000000;
    if (at.tv_nsec >= 1000000000) at.tv_sec++, at.tv_nsec -= 1000000000;
    return at;
}

typedef struct {
    int64_t count;
    int64_t not_given; /* stands for a write time that was left out */
    const int64_t *written_ms;
    Binary origins, keys, values;
    const int32_t *schema_ids;
    const uint8_t *alive; /* 0: a tombstone */
    const char *append_id; /* goes with the last record; NULL: these are probes, which nobody reads */
    int64_t append_id_size;
    int32_t key_schema_id;
    int32_t is_raw; /* keys and values go as they are; write times are Kafka's timestamps; no origins, no schema ids */
    const uint8_t *keyed; /* of raw records, 0: there is no key */
} Records;

static int send_record(Client *client, Kafka *topic, int32_t partition, const Records *records, size_t row,
                       unsigned char *key, unsigned char *value, Delivery *delivery) {
    char written[24];
    Argument arguments[10];
    size_t count = 0, skipped = records->is_raw ? HEADER_BYTES : 0;
    put_header(key, records->key_schema_id);
    memcpy(key + HEADER_BYTES, data_at(&records->keys, row), size_at(&records->keys, row));
    arguments[count++] = (Argument){OF_TOPIC, {.handle = topic}};
    arguments[count++] = (Argument){OF_PARTITION, {.i32 = partition}};
    arguments[count++] = (Argument){OF_FLAGS, {.i = COPY | BLOCK}};
    arguments[count++] = (Argument){OF_OPAQUE, {.ptr = delivery}};
    if (!records->is_raw || records->keyed[row])
        arguments[count++] = (Argument){OF_KEY, {.mem = {key + skipped, HEADER_BYTES - skipped + size_at(&records->keys, row)}}};
    if (records->alive[row]) {
        put_header(value, records->is_raw ? 0 : records->schema_ids[row]);
        memcpy(value + HEADER_BYTES, data_at(&records->values, row), size_at(&records->values, row));
        arguments[count++] = (Argument){OF_VALUE, {.mem = {value + skipped, HEADER_BYTES - skipped + size_at(&records->values, row)}}};
    }
    if (records->append_id == NULL) {
        arguments[count++] = (Argument){OF_HEADER, {.header = {PROBE, "", 0}}};
    } else {
        ssize_t origin_size = records->is_raw ? 0 : (ssize_t)size_at(&records->origins, row);
        if (origin_size)
            arguments[count++] = (Argument){OF_HEADER, {.header = {ORIGIN, data_at(&records->origins, row), origin_size}}};
        if (records->is_raw && records->written_ms[row] != records->not_given) {
            arguments[count++] = (Argument){OF_TIME, {.i64 = records->written_ms[row]}};
        } else if (records->written_ms[row] != records->not_given) {
            int size = snprintf(written, sizeof written, "%lld", (long long)records->written_ms[row]);
            arguments[count++] = (Argument){OF_HEADER, {.header = {WRITTEN_AT, written, size}}};
        }
        if ((int64_t)row == records->count - 1)
            arguments[count++] = (Argument){OF_HEADER, {.header = {APPEND, records->append_id, records->append_id_size}}};
    }
    Kafka *error = rd_kafka_produceva(client->handle, arguments, count);
    if (error == NULL) return 0;
    int code = rd_kafka_error_code(error);
    rd_kafka_error_destroy(error);
    return code;
}

/* Append records and wait for their acknowledgement.
 *
 * `found`: landed, lost, unknown, first offset, last offset, append time of the last, error code, least append time. What is still under
 * way after `timeout_ms` counts as unknown; librdkafka's own deadline is to be shorter.
 */
int kafka_append(Client *client, const char *name, int32_t partition, const Records *records, int64_t timeout_ms, int64_t *found) {
    size_t count = (size_t)records->count, sent = 0;
    unsigned char *key = malloc(HEADER_BYTES + widest(&records->keys, count));
    unsigned char *value = malloc(HEADER_BYTES + widest(&records->values, count));
    Delivery *delivery = malloc(sizeof *delivery);
    Kafka *topic = rd_kafka_topic_new(client->handle, name, NULL);
    if (key == NULL || value == NULL || delivery == NULL || topic == NULL) {
        if (topic == NULL) PyErr_SetString(kafka_error, rd_kafka_err2str(rd_kafka_last_error()));
        else PyErr_NoMemory(), rd_kafka_topic_destroy(topic);
        free(key), free(value), free(delivery);
        return -1;
    }
    /* As many users as records, before the first is sent, and who waits. */
    *delivery = (Delivery){.client = client, .users = count + 1, .first = -1, .last = -1};
    void *thread = PyEval_SaveThread();
    int error = 0;
    pthread_mutex_lock(&client->sending);
    while (sent < count && (error = send_record(client, topic, partition, records, sent, key, value, delivery)) == 0) sent++;
    pthread_mutex_unlock(&client->sending);
    struct timespec until = after_ms(timeout_ms);
    pthread_mutex_lock(&client->lock);
    delivery->users -= count - sent;
    delivery->lost += count - sent;
    if (error) delivery->error = error;
    while (delivery->users > 1 && pthread_cond_timedwait(&client->told, &client->lock, &until) == 0) {}
    found[0] = (int64_t)delivery->landed;
    found[1] = (int64_t)delivery->lost;
    found[2] = (int64_t)(count - delivery->landed - delivery->lost);
    found[3] = delivery->first;
    found[4] = delivery->last;
    found[5] = delivery->last_ms;
    found[6] = delivery->error;
    found[7] = delivery->least_ms;
    leave(delivery);
    pthread_mutex_unlock(&client->lock);
    rd_kafka_topic_destroy(topic);
    PyEval_RestoreThread(thread);
    free(key), free(value);
    return 0;
}

/* -- reading ------------------------------------------------------------------------------------------------------ */

typedef struct {
    Kafka *handle, *topic;
    int32_t partition;
    Kafka *fetched; /* the queue that is fetched into */
} Cursor;

/* Begin to fetch a partition from an offset; a client reads each of its partitions at one place. */
void *kafka_start(Client *client, const char *name, int32_t partition, int64_t offset) {
    Cursor *cursor = malloc(sizeof *cursor);
    Kafka *topic = rd_kafka_topic_new(client->handle, name, NULL);
    if (cursor != NULL && topic != NULL && rd_kafka_consume_start(topic, partition, offset) == 0) {
        *cursor = (Cursor){client->handle, topic, partition, rd_kafka_queue_get_partition(client->handle, name, partition)};
        return cursor;
    }
    PyErr_SetString(kafka_error, rd_kafka_err2str(rd_kafka_last_error()));
    if (topic != NULL) rd_kafka_topic_destroy(topic);
    free(cursor);
    return NULL;
}

void kafka_stop(Cursor *cursor) {
    void *thread = PyEval_SaveThread();
    rd_kafka_consume_stop(cursor->topic, cursor->partition);
    if (cursor->fetched != NULL) rd_kafka_queue_destroy(cursor->fetched);
    rd_kafka_topic_destroy(cursor->topic);
    free(cursor);
    PyEval_RestoreThread(thread);
}

/* Say of each cursor whether anything waits to be taken: records, an end, an error; 1 also where that is not known. */
void kafka_waiting(Cursor *const *cursors, int64_t count, unsigned char *waits) {
    for (int64_t i = 0; i < count; i++) waits[i] = cursors[i]->fetched == NULL || rd_kafka_queue_length(cursors[i]->fetched) > 0;
}

typedef struct {
    char *data;
    size_t size, room;
} Bytes;

/* Make room for more at the end and count it as used; NULL without memory. */
static void *grown(Bytes *bytes, size_t more) {
    if (bytes->data == NULL || bytes->size + more > bytes->room) {
        size_t room = 2 * (bytes->size + more) + 4096;
        char *data = realloc(bytes->data, room);
        if (data == NULL) return NULL;
        bytes->data = data, bytes->room = room;
    }
    bytes->size += more;
    return bytes->data + bytes->size - more;
}

enum { OFFSETS, APPENDED, WRITTEN, ORIGIN_ENDS, ORIGINS, KEY_ENDS, KEYS, SCHEMAS, VALUE_ENDS, VALUES, ALIVE, FLAWS, COLUMNS };

/* Why a record cannot be applied: as `anew.log.interface.Flaw`. */
enum { SOUND, NO_KEY, KEY_WITHOUT_HEADER, UNKNOWN_KEY_SCHEMA, VALUE_WITHOUT_HEADER, BAD_WRITTEN_AT };

static int put(Bytes *column, const void *data, size_t size) {
    void *at = grown(column, size);
    if (at == NULL) return -1;
    if (size) memcpy(at, data, size);
    return 0;
}

static int put_binary(Bytes *ends, Bytes *column, const void *data, size_t size) {
    if (column->size + size > INT32_MAX) return -1;
    if (put(column, data, size)) return -1;
    int32_t end = (int32_t)column->size;
    return put(ends, &end, sizeof end);
}

static int parsed_ms(const char *text, size_t size, int64_t *ms) {
    int64_t value = 0;
    if (size == 0 || size > 18) return -1;
    for (size_t i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9') return -1;
        value = 10 * value + (text[i] - '0');
    }
    *ms = value;
    return 0;
}

typedef struct {
    int64_t written_ms;
    const void *origin;
    size_t origin_size;
    int is_probe, is_bad;
} Headers;

static Headers headers_of(const Message *message, int64_t not_given) {
    Headers found = {.written_ms = not_given};
    Kafka *headers;
    if (rd_kafka_message_headers(message, &headers) != 0) return found;
    const char *name;
    const void *value;
    size_t size;
    for (size_t i = 0; rd_kafka_header_get_all(headers, i, &name, &value, &size) == 0; i++) {
        if (strcmp(name, ORIGIN) == 0) found.origin = value, found.origin_size = size;
        else if (strcmp(name, WRITTEN_AT) == 0) found.is_bad = value == NULL || parsed_ms(value, size, &found.written_ms);
        else if (strcmp(name, PROBE) == 0) found.is_probe = 1;
    }
    return found;
}

/* A record as it is; the key's absence takes the place of flaws. */
static int put_raw(Bytes *columns, const Message *message) {
    int32_t schema_id = 0;
    uint8_t alive = message->payload != NULL, flaw = message->key == NULL ? NO_KEY : SOUND;
    int64_t timestamp_ms = rd_kafka_message_timestamp(message, NULL);
    return put(&columns[OFFSETS], &message->offset, sizeof message->offset)
        || put(&columns[APPENDED], &timestamp_ms, sizeof timestamp_ms)
        || put_binary(&columns[KEY_ENDS], &columns[KEYS], message->key, message->key_len)
        || put(&columns[SCHEMAS], &schema_id, sizeof schema_id)
        || put_binary(&columns[VALUE_ENDS], &columns[VALUES], message->payload, message->len)
        || put(&columns[ALIVE], &alive, sizeof alive)
        || put(&columns[FLAWS], &flaw, sizeof flaw);
}

static int put_message(Bytes *columns, const Message *message, int32_t key_schema_id, int is_raw, int64_t not_given) {
    Headers headers = headers_of(message, not_given);
    if (headers.is_probe) return 0;
    if (is_raw) return put_raw(columns, message);
    uint8_t flaw = SOUND;
    const char *key = message->key, *value = message->payload;
    size_t key_size = message->key_len, value_size = message->len;
    int32_t schema_id = 0;
    uint8_t alive = value != NULL;
    if (headers.is_bad) flaw = BAD_WRITTEN_AT;
    if (alive && has_header(value, value_size)) schema_id = schema_of(value), value += HEADER_BYTES, value_size -= HEADER_BYTES;
    else if (alive) flaw = VALUE_WITHOUT_HEADER;
    if (key == NULL) flaw = NO_KEY;
    else if (!has_header(key, key_size)) flaw = KEY_WITHOUT_HEADER;
    else {
        if (schema_of(key) != key_schema_id) flaw = UNKNOWN_KEY_SCHEMA;
        key += HEADER_BYTES, key_size -= HEADER_BYTES;
    }
    int64_t appended_ms = rd_kafka_message_timestamp(message, NULL);
    return put(&columns[OFFSETS], &message->offset, sizeof message->offset)
        || put(&columns[APPENDED], &appended_ms, sizeof appended_ms)
        || put(&columns[WRITTEN], &headers.written_ms, sizeof headers.written_ms)
        || put_binary(&columns[ORIGIN_ENDS], &columns[ORIGINS], headers.origin, headers.origin_size)
        || put_binary(&columns[KEY_ENDS], &columns[KEYS], key, key_size)
        || put(&columns[SCHEMAS], &schema_id, sizeof schema_id)
        || put_binary(&columns[VALUE_ENDS], &columns[VALUES], value, value_size)
        || put(&columns[ALIVE], &alive, sizeof alive)
        || put(&columns[FLAWS], &flaw, sizeof flaw);
}

/* Whether an offset was the partition's end when its last records came: they tell of the end as of then. */
static int is_end(const Cursor *cursor, int64_t offset) {
    int64_t low, high = -1;
    rd_kafka_get_watermark_offsets(cursor->handle, rd_kafka_topic_name(cursor->topic), cursor->partition, &low, &high);
    return high >= 0 && offset >= high;
}

/* The next records as columns, once there is one, or the end is known, or the time is over.
 *
 * Raw records have neither write times, origins nor schema ids, and in the place of flaws whether each lacks its key.
 *
 * Returns offsets, append times, write times, origin ends, origins, key ends, keys, schema ids, value ends, values,
 * whether each is alive, flaws; and as an array of numbers: the offset to go on at, whether that is the partition's
 * end now, and the code of the error that ended the reading after these records, or 0.
 */
Object *kafka_take(Cursor *cursor, int64_t position, int32_t key_schema_id, int is_raw, int64_t not_given, int64_t most,
                   int timeout_ms) {
    Bytes columns[COLUMNS] = {0};
    int64_t told[3] = {position, 0, 0};
    int32_t none = 0;
    ssize_t count = 0;
    Object *taken = NULL;
    Message **messages = malloc((size_t)most * sizeof *messages);
    int failed = messages == NULL || put(&columns[ORIGIN_ENDS], &none, sizeof none) || put(&columns[KEY_ENDS], &none, sizeof none)
        || put(&columns[VALUE_ENDS], &none, sizeof none);
    if (failed) goto end;
    void *thread = PyEval_SaveThread();
    count = rd_kafka_consume_batch(cursor->topic, cursor->partition, 0, messages, (size_t)most);
    if (count == 0 && timeout_ms > 0) {
        messages[0] = rd_kafka_consume(cursor->topic, cursor->partition, timeout_ms);
        if (messages[0] != NULL) {
            count = 1;
            ssize_t more = most == 1 ? 0 : rd_kafka_consume_batch(cursor->topic, cursor->partition, 0, messages + 1, (size_t)most - 1);
            if (more > 0) count += more;
        }
    }
    if (count < 0) told[2] = rd_kafka_last_error(), count = 0;
    for (ssize_t i = 0; i < count; i++) {
        const Message *message = messages[i];
        if (told[2] == 0 && !failed) {
            if (message->err == PARTITION_EOF) {
                if (message->offset > told[0]) told[0] = message->offset;
                told[1] = 1;
            } else if (message->err) {
                told[2] = message->err;
            } else if (message->offset >= told[0]) {
                failed = put_message(columns, message, key_schema_id, is_raw, not_given);
                told[0] = message->offset + 1;
                told[1] = 0;
            }
        }
        rd_kafka_message_destroy(messages[i]);
    }
    if (told[0] > position && is_end(cursor, told[0])) told[1] = 1;
    PyEval_RestoreThread(thread);
    if (failed) goto end;
    taken = PyList_New(0);
    for (int i = 0; taken != NULL && i <= COLUMNS; i++) {
        Object *bytes = i < COLUMNS ? PyBytes_FromStringAndSize(columns[i].data, (ssize_t)columns[i].size)
                                    : PyBytes_FromStringAndSize((char *)told, sizeof told);
        if (bytes == NULL || PyList_Append(taken, bytes)) {
            Py_DecRef(taken);
            taken = NULL;
        }
        if (bytes != NULL) Py_DecRef(bytes);
    }
end:
    if (failed) PyErr_NoMemory();
    for (int i = 0; i < COLUMNS; i++) free(columns[i].data);
    free(messages);
    return taken;
}
