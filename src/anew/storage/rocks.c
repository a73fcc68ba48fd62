/* RocksDB for Python, over the C interface of a RocksDB library that is found at run time.
 *
 * Each function is called through ctypes.PyDLL, so with the interpreter's lock; what may wait for a disk, or takes long,
 * gives it back meanwhile, so that a node's readers go on. Many keys and cells pass in one call. A failure sets the
 * Python exception and returns NULL or -1.
 *
 * It needs a C compiler and nothing else: of Python's C interface it uses the stable part, declared here.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/* -- Python's stable C interface -------------------------------------------------------------------------------- */

typedef struct Object Object;
extern char _Py_NoneStruct;
extern void Py_IncRef(Object *);
extern void Py_DecRef(Object *);
extern Object *PyBytes_FromStringAndSize(const char *, ssize_t);
extern int PyBytes_AsStringAndSize(Object *, char **, ssize_t *);
extern Object *PyList_New(ssize_t);
extern ssize_t PyList_Size(Object *);
extern Object *PyList_GetItem(Object *, ssize_t);
extern int PyList_SetItem(Object *, ssize_t, Object *);
extern int PyList_Append(Object *, Object *);
extern void PyErr_SetString(Object *, const char *);
extern Object *PyErr_NoMemory(void);
extern void *PyEval_SaveThread(void);
extern void PyEval_RestoreThread(void *);

/* -- RocksDB's C interface --------------------------------------------------------------------------------------- */

typedef void Rocks; /* anything of RocksDB's: it is passed on and never looked into */

#define ROCKSDB(X) \
    X(Rocks *, open_column_families, (const Rocks *, const char *, int, const char *const *, const Rocks *const *, Rocks **, char **)) \
    X(Rocks *, open_for_read_only_column_families, (const Rocks *, const char *, int, const char *const *, const Rocks *const *, Rocks **, unsigned char, char **)) \
    X(void, close, (Rocks *)) \
    X(void, column_family_handle_destroy, (Rocks *)) \
    X(void, free, (void *)) \
    X(Rocks *, readoptions_create, (void)) \
    X(void, readoptions_destroy, (Rocks *)) \
    X(void, readoptions_set_readahead_size, (Rocks *, size_t)) \
    X(Rocks *, writeoptions_create, (void)) \
    X(void, writeoptions_set_sync, (Rocks *, unsigned char)) \
    X(Rocks *, get_pinned_cf, (Rocks *, const Rocks *, Rocks *, const char *, size_t, char **)) \
    X(const char *, pinnableslice_value, (const Rocks *, size_t *)) \
    X(void, pinnableslice_destroy, (Rocks *)) \
    X(void, batched_multi_get_cf, (Rocks *, const Rocks *, Rocks *, size_t, const char *const *, const size_t *, Rocks **, char **, unsigned char)) \
    X(Rocks *, writebatch_create, (void)) \
    X(void, writebatch_destroy, (Rocks *)) \
    X(void, writebatch_put_cf, (Rocks *, Rocks *, const char *, size_t, const char *, size_t)) \
    X(void, write, (Rocks *, const Rocks *, Rocks *, char **)) \
    X(Rocks *, create_iterator_cf, (Rocks *, const Rocks *, Rocks *)) \
    X(void, iter_seek, (Rocks *, const char *, size_t)) \
    X(unsigned char, iter_valid, (const Rocks *)) \
    X(void, iter_next, (Rocks *)) \
    X(const char *, iter_key, (const Rocks *, size_t *)) \
    X(const char *, iter_value, (const Rocks *, size_t *)) \
    X(void, iter_get_error, (const Rocks *, char **)) \
    X(void, iter_destroy, (Rocks *)) \
    X(Rocks *, ingestexternalfileoptions_create, (void)) \
    X(void, ingestexternalfileoptions_set_move_files, (Rocks *, unsigned char)) \
    X(void, ingestexternalfileoptions_destroy, (Rocks *)) \
    X(void, ingest_external_file, (Rocks *, const char *const *, size_t, const Rocks *, char **)) \
    X(const Rocks *, livefiles, (Rocks *)) \
    X(int, livefiles_count, (const Rocks *)) \
    X(uint64_t, livefiles_entries, (const Rocks *, int)) \
    X(const char *, livefiles_column_family_name, (const Rocks *, int)) \
    X(void, livefiles_destroy, (const Rocks *)) \
    X(Rocks *, checkpoint_object_create, (Rocks *, char **)) \
    X(void, checkpoint_create, (Rocks *, const char *, uint64_t, char **)) \
    X(void, checkpoint_object_destroy, (Rocks *)) \
    X(Rocks *, envoptions_create, (void)) \
    X(void, envoptions_destroy, (Rocks *)) \
    X(Rocks *, sstfilewriter_create, (const Rocks *, const Rocks *)) \
    X(void, sstfilewriter_open, (Rocks *, const char *, char **)) \
    X(void, sstfilewriter_put, (Rocks *, const char *, size_t, const char *, size_t, char **)) \
    X(void, sstfilewriter_finish, (Rocks *, char **)) \
    X(void, sstfilewriter_destroy, (Rocks *))

#define DECLARE(result, name, arguments) static result(*rocksdb_##name) arguments;
ROCKSDB(DECLARE)

static Object *rocks_error, *closed_error;
static Rocks *reading, *writing, *syncing;

/* Find RocksDB's functions; `failed` and `closed` are the exceptions to raise. -1: the library lacks one. */
int rocks_bind(const char *library, Object *failed, Object *closed) {
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        PyErr_SetString(failed, dlerror());
        return -1;
    }
#define FIND(result, name, arguments) \
    *(void **)&rocksdb_##name = dlsym(handle, "rocksdb_" #name); \
    if (rocksdb_##name == NULL) { PyErr_SetString(failed, "the library lacks rocksdb_" #name); return -1; }
    ROCKSDB(FIND)
    Py_IncRef(rocks_error = failed);
    Py_IncRef(closed_error = closed);
    reading = rocksdb_readoptions_create();
    writing = rocksdb_writeoptions_create();
    syncing = rocksdb_writeoptions_create();
    rocksdb_writeoptions_set_sync(syncing, 1);
    return 0;
}

/* Raise RocksDB's error, where there is one; whether there was. */
static int raised(char *error) {
    if (error == NULL) return 0;
    PyErr_SetString(rocks_error, error);
    rocksdb_free(error);
    return 1;
}

/* Let an object go, where there is one; NULL, to stand in its place. */
static Object *forget_object(Object *object) {
    if (object != NULL) Py_DecRef(object);
    return NULL;
}

/* -- many byte strings at once ------------------------------------------------------------------------------------ */

/* Where a list's byte strings lie; they stay there for as long as the list is left alone. */
typedef struct { size_t count; const char **data; size_t *sizes; } Strings;

static void forget(Strings *strings) {
    free(strings->data);
    free(strings->sizes);
}

static int look_at(Object *list, Strings *strings) {
    ssize_t count = PyList_Size(list);
    *strings = (Strings){0, NULL, NULL};
    if (count < 0) return -1;
    strings->data = malloc((size_t)(count + 1) * sizeof *strings->data);
    strings->sizes = malloc((size_t)(count + 1) * sizeof *strings->sizes);
    if (strings->data == NULL || strings->sizes == NULL) { forget(strings); PyErr_NoMemory(); return -1; }
    for (ssize_t i = 0; i < count; i++) {
        char *data;
        ssize_t size;
        if (PyBytes_AsStringAndSize(PyList_GetItem(list, i), &data, &size)) { forget(strings); return -1; }
        strings->data[i] = data;
        strings->sizes[i] = (size_t)size;
    }
    strings->count = (size_t)count;
    return 0;
}

/* -- databases ----------------------------------------------------------------------------------------------------- */

enum { CELLS, META, FAMILIES };

/* One that is closed stays as long as somebody may still ask it: Python frees it. */
typedef struct {
    Rocks *database, *families[FAMILIES];
    pthread_mutex_t lock;
    pthread_cond_t left;
    int users, is_closed;
} Database;

/* Keep a database open until `leave`; 0 and an exception when it is closed. */
static int enter(Database *database) {
    pthread_mutex_lock(&database->lock);
    int may = !database->is_closed;
    database->users += may;
    pthread_mutex_unlock(&database->lock);
    if (!may) PyErr_SetString(closed_error, "the database is closed");
    return may;
}

static void leave(Database *database) {
    pthread_mutex_lock(&database->lock);
    if (--database->users == 0 && database->is_closed) pthread_cond_broadcast(&database->left);
    pthread_mutex_unlock(&database->lock);
}

/* Open a directory with the families "default" and `meta`; without `may_write` as it is, for reading. */
void *rocks_open(const char *directory, const char *meta, Rocks *cell_options, Rocks *meta_options, int may_write) {
    const char *names[FAMILIES] = {"default", meta};
    const Rocks *options[FAMILIES] = {cell_options, meta_options};
    char *error = NULL;
    Database *database = calloc(1, sizeof *database);
    if (database == NULL) { PyErr_NoMemory(); return NULL; }
    void *thread = PyEval_SaveThread();
    database->database = may_write
        ? rocksdb_open_column_families(cell_options, directory, FAMILIES, names, options, database->families, &error)
        : rocksdb_open_for_read_only_column_families(
            cell_options, directory, FAMILIES, names, options, database->families, 0, &error);
    PyEval_RestoreThread(thread);
    if (raised(error)) { free(database); return NULL; }
    pthread_mutex_init(&database->lock, NULL);
    pthread_cond_init(&database->left, NULL);
    return database;
}

/* Close once nobody is inside any more; whoever comes later is told. Again: nothing happens. */
void rocks_close(Database *database) {
    void *thread = PyEval_SaveThread();
    pthread_mutex_lock(&database->lock);
    int was_closed = database->is_closed;
    database->is_closed = 1;
    while (database->users > 0) pthread_cond_wait(&database->left, &database->lock);
    pthread_mutex_unlock(&database->lock);
    if (!was_closed) {
        for (int family = 0; family < FAMILIES; family++)
            rocksdb_column_family_handle_destroy(database->families[family]);
        rocksdb_close(database->database);
    }
    PyEval_RestoreThread(thread);
}

/* Free a closed database, which nobody knows any more. */
void rocks_free(Database *database) {
    pthread_cond_destroy(&database->left);
    pthread_mutex_destroy(&database->lock);
    free(database);
}

static Object *bytes_of(Rocks *slice) {
    if (slice == NULL) {
        Py_IncRef((Object *)&_Py_NoneStruct);
        return (Object *)&_Py_NoneStruct;
    }
    size_t size;
    const char *data = rocksdb_pinnableslice_value(slice, &size);
    Object *bytes = PyBytes_FromStringAndSize(data, (ssize_t)size);
    rocksdb_pinnableslice_destroy(slice);
    return bytes;
}

/* The value of a key, or None. Keeps the interpreter: two microseconds, where giving it away may cost a turn's wait. */
Object *rocks_get(Database *database, int family, Object *key) {
    char *data, *error = NULL;
    ssize_t size;
    if (PyBytes_AsStringAndSize(key, &data, &size) || !enter(database)) return NULL;
    Rocks *slice = rocksdb_get_pinned_cf(
        database->database, reading, database->families[family], data, (size_t)size, &error);
    Object *found = raised(error) ? NULL : bytes_of(slice);
    leave(database);
    return found;
}

#define KEPT_KEYS 256 /* for more the interpreter is given away meanwhile */

/* The cells of keys, in their order, None where there is none; `is_sorted`: the keys ascend. */
Object *rocks_get_many(Database *database, Object *keys, int is_sorted) {
    Strings asked;
    if (look_at(keys, &asked)) return NULL;
    Rocks **slices = calloc(asked.count + 1, sizeof *slices);
    char **errors = calloc(asked.count + 1, sizeof *errors), *error = NULL;
    Object *found = NULL;
    if (slices == NULL || errors == NULL) { PyErr_NoMemory(); goto end; }
    if (!enter(database)) goto end;
    if (asked.count > 0) {
        void *thread = asked.count > KEPT_KEYS ? PyEval_SaveThread() : NULL;
        rocksdb_batched_multi_get_cf(database->database, reading, database->families[CELLS], asked.count,
            asked.data, asked.sizes, slices, errors, (unsigned char)is_sorted);
        if (thread != NULL) PyEval_RestoreThread(thread);
    }
    found = PyList_New((ssize_t)asked.count);
    for (size_t i = 0; i < asked.count; i++) {
        /* Each slice is let go, whatever becomes of the list. */
        Object *bytes = bytes_of(slices[i]);
        if (found == NULL) forget_object(bytes);
        else if (bytes == NULL || PyList_SetItem(found, (ssize_t)i, bytes)) found = forget_object(found);
        if (error == NULL) error = errors[i];
        else if (errors[i] != NULL) rocksdb_free(errors[i]);
    }
    leave(database);
    if (raised(error)) found = forget_object(found);
end:
    free(slices);
    free(errors);
    forget(&asked);
    return found;
}

/* Put cells and meta entries, all or none; `is_durable`: on disk before it returns. */
int rocks_write(Database *database, Object *keys, Object *cells, Object *meta_keys, Object *meta_values, int is_durable) {
    Object *lists[] = {keys, cells, meta_keys, meta_values};
    Strings puts[4];
    int looked_at = 0, outcome = -1;
    char *error = NULL;
    while (looked_at < 4 && look_at(lists[looked_at], &puts[looked_at]) == 0) looked_at++;
    if (looked_at < 4) goto end;
    if (puts[0].count != puts[1].count || puts[2].count != puts[3].count) {
        PyErr_SetString(rocks_error, "as many values as keys are written");
        goto end;
    }
    if (!enter(database)) goto end;
    void *thread = PyEval_SaveThread();
    Rocks *batch = rocksdb_writebatch_create();
    for (int family = 0; family < FAMILIES; family++) {
        Strings *names = &puts[2 * family], *values = names + 1;
        for (size_t i = 0; i < names->count; i++)
            rocksdb_writebatch_put_cf(batch, database->families[family], names->data[i], names->sizes[i],
                values->data[i], values->sizes[i]);
    }
    rocksdb_write(database->database, is_durable ? syncing : writing, batch, &error);
    rocksdb_writebatch_destroy(batch);
    PyEval_RestoreThread(thread);
    leave(database);
    outcome = raised(error) ? -1 : 0;
end:
    while (looked_at > 0) forget(&puts[--looked_at]);
    return outcome;
}

/* Take sorted files in, all or none; they are moved. The names are NUL-terminated, as Python's byte strings are. */
int rocks_ingest(Database *database, Object *paths) {
    Strings files;
    char *error = NULL;
    if (look_at(paths, &files)) return -1;
    int may = enter(database);
    if (may) {
        void *thread = PyEval_SaveThread();
        Rocks *options = rocksdb_ingestexternalfileoptions_create();
        rocksdb_ingestexternalfileoptions_set_move_files(options, 1);
        rocksdb_ingest_external_file(database->database, files.data, files.count, options, &error);
        rocksdb_ingestexternalfileoptions_destroy(options);
        PyEval_RestoreThread(thread);
        leave(database);
    }
    forget(&files);
    return !may || raised(error) ? -1 : 0;
}

/* How many entries the sorted files of the cells hold. */
int64_t rocks_entries(Database *database) {
    if (!enter(database)) return -1;
    int64_t entries = 0;
    const Rocks *files = rocksdb_livefiles(database->database);
    for (int i = 0; i < rocksdb_livefiles_count(files); i++)
        if (strcmp(rocksdb_livefiles_column_family_name(files, i), "default") == 0)
            entries += (int64_t)rocksdb_livefiles_entries(files, i);
    rocksdb_livefiles_destroy(files);
    leave(database);
    return entries;
}

/* Keep everything of this moment under a fresh directory, by hard links; what is in memory is flushed first. */
int rocks_checkpoint(Database *database, const char *directory) {
    char *error = NULL;
    if (!enter(database)) return -1;
    void *thread = PyEval_SaveThread();
    Rocks *checkpoint = rocksdb_checkpoint_object_create(database->database, &error);
    if (error == NULL) {
        rocksdb_checkpoint_create(checkpoint, directory, 0, &error);
        rocksdb_checkpoint_object_destroy(checkpoint);
    }
    PyEval_RestoreThread(thread);
    leave(database);
    return raised(error) ? -1 : 0;
}

/* -- cursors -------------------------------------------------------------------------------------------------------- */

typedef struct { Database *database; Rocks *options, *iterator; } Cursor;

/* A cursor over a family as it is now; until it is closed the database stays open. */
void *rocks_cursor(Database *database, int family, size_t readahead_bytes) {
    Cursor *cursor = malloc(sizeof *cursor);
    if (cursor == NULL) { PyErr_NoMemory(); return NULL; }
    if (!enter(database)) { free(cursor); return NULL; }
    cursor->database = database;
    cursor->options = rocksdb_readoptions_create();
    rocksdb_readoptions_set_readahead_size(cursor->options, readahead_bytes);
    cursor->iterator = rocksdb_create_iterator_cf(database->database, cursor->options, database->families[family]);
    return cursor;
}

/* Go to the first key that is not below one. */
int rocks_seek(Cursor *cursor, Object *key) {
    char *data;
    ssize_t size;
    if (PyBytes_AsStringAndSize(key, &data, &size)) return -1;
    rocksdb_iter_seek(cursor->iterator, data, (size_t)size);
    return 0;
}

static int append(Object *list, const char *data, size_t size) {
    Object *bytes = PyBytes_FromStringAndSize(data, (ssize_t)size);
    int failed = bytes == NULL || PyList_Append(list, bytes);
    forget_object(bytes);
    return failed;
}

/* The next keys and values in turn, so many pairs at most, fewer at the end alone. */
Object *rocks_take(Cursor *cursor, int64_t most) {
    Object *taken = PyList_New(0);
    for (int64_t pairs = 0; taken != NULL && pairs < most && rocksdb_iter_valid(cursor->iterator); pairs++) {
        size_t key_size, value_size;
        const char *key = rocksdb_iter_key(cursor->iterator, &key_size);
        const char *value = rocksdb_iter_value(cursor->iterator, &value_size);
        if (append(taken, key, key_size) || append(taken, value, value_size)) taken = forget_object(taken);
        rocksdb_iter_next(cursor->iterator);
    }
    char *error = NULL;
    rocksdb_iter_get_error(cursor->iterator, &error);
    return raised(error) ? forget_object(taken) : taken;
}

void rocks_end(Cursor *cursor) {
    rocksdb_iter_destroy(cursor->iterator);
    rocksdb_readoptions_destroy(cursor->options);
    leave(cursor->database);
    free(cursor);
}

/* -- sorted files --------------------------------------------------------------------------------------------------- */

/* Begin a sorted file, apart from any database. */
void *rocks_sst_open(const char *path, Rocks *options) {
    char *error = NULL;
    Rocks *environment = rocksdb_envoptions_create();
    Rocks *writer = rocksdb_sstfilewriter_create(environment, options);
    rocksdb_envoptions_destroy(environment);
    rocksdb_sstfilewriter_open(writer, path, &error);
    if (raised(error)) {
        rocksdb_sstfilewriter_destroy(writer);
        return NULL;
    }
    return writer;
}

/* Add pairs in ascending order: the columns of an Arrow table, offsets and bytes, of shape (count + 1,) and any. */
int rocks_sst_put(Rocks *writer, int64_t count, const int32_t *key_offsets, const char *keys,
                  const int32_t *cell_offsets, const char *cells) {
    char *error = NULL;
    void *thread = PyEval_SaveThread();
    for (int64_t i = 0; i < count && error == NULL; i++)
        rocksdb_sstfilewriter_put(writer, keys + key_offsets[i], (size_t)(key_offsets[i + 1] - key_offsets[i]),
            cells + cell_offsets[i], (size_t)(cell_offsets[i + 1] - cell_offsets[i]), &error);
    PyEval_RestoreThread(thread);
    return raised(error) ? -1 : 0;
}

int rocks_sst_finish(Rocks *writer) {
    char *error = NULL;
    void *thread = PyEval_SaveThread();
    rocksdb_sstfilewriter_finish(writer, &error);
    PyEval_RestoreThread(thread);
    return raised(error) ? -1 : 0;
}

void rocks_sst_free(Rocks *writer) { rocksdb_sstfilewriter_destroy(writer); }
