/* The pieces of rows: found in the offsets of documents (cut), or in a table that keeps them (gather).
 *
 * Offsets come in chunks of ascending numbers, the first token of every document and the end of the
 * last one. A range is found there and walked along; it may go on in the next chunk. A table has the
 * pieces of a row one after the other, in the narrowest integers that hold them.
 */
#include "_native.h"

typedef struct {
    const uint32_t *offsets;
    Index documents;
    int64_t base, number; /* what is added to its offsets, and to its documents */
    int64_t low, high;    /* its first token and the end of its last, when they were read */
} Chunk;

/* Pieces that were found; those beyond `room` are counted only. */
typedef struct {
    int64_t *document, *start, *length, *address;
    Index room, count;
} Pieces;

/* The last of some chunks that does not start after a token; -1 if all do. */
static Index
chunk_of(const Chunk *chunks, Index count, int64_t token)
{
    Index low = 0, high = count;
    while (low < high) {
        Index middle = low + (high - low) / 2;
        if (chunks[middle].low <= token)
            low = middle + 1;
        else
            high = middle;
    }
    return low - 1;
}

/* The last document of a chunk that does not start after a token of it: of several that start at one
 * token, all but the last are empty. */
static Index
document_of(const Chunk *chunk, uint32_t token)
{
    const uint32_t *at = chunk->offsets;
    Index left = chunk->documents;
    while (left > 1) { /* no branch to guess: the compiler moves by a condition */
        Index half = left / 2;
        at = READ(uint32_t, at + half) <= token ? at + half : at;
        left -= half;
    }
    return at - chunk->offsets;
}

/* Put the pieces of a range; -1 if no chunk has some of its tokens. */
static int
walk(const Chunk *chunks, Index count, int64_t start, int64_t stop, Pieces *out)
{
    Index which = chunk_of(chunks, count, start);
    if (which < 0 || start >= stop)
        return which < 0 ? -1 : 0;
    for (; start < stop; which++) {
        const Chunk *chunk = &chunks[which];
        if (which < count && start == chunk->low && start == chunk->high)
            continue; /* its documents are empty */
        if (which == count || start < chunk->low || start >= chunk->high)
            return -1;
        Index i = document_of(chunk, (uint32_t)(start - chunk->base));
        int64_t begin = chunk->base + READ(uint32_t, chunk->offsets + i);
        for (; i < chunk->documents && start < stop; i++) {
            int64_t end = chunk->base + READ(uint32_t, chunk->offsets + i + 1);
            if (end > start) {
                int64_t here = end < stop ? end : stop;
                if (begin > start)
                    return -1;
                if (out->count < out->room) {
                    out->document[out->count] = chunk->number + i;
                    out->start[out->count] = start - begin;
                    out->length[out->count] = here - start;
                    out->address[out->count] = start;
                }
                out->count++;
                start = here;
            }
            begin = end;
        }
    }
    return 0;
}

enum { BASE, NUMBER, START, STOP, EDGES, DOCUMENT, BEGIN, LENGTH, ADDRESS, ARRAYS };

static const Wanted WANTED[ARRAYS] = {
    {"base", INT64, 0, 0},     {"number", INT64, 0, 0}, {"start", INT64, 0, 0},
    {"stop", INT64, 0, 0},     {"edges", INT64, 1, 0},  {"document", INT64, 1, 0},
    {"begin", INT64, 1, 0},    {"length", INT64, 1, 0}, {"address", INT64, 1, 0},
};

/* Chunks whose tokens ascend; how many, or -1 with an exception. `views` are held then. */
static Index
get_chunks(PyObject *arrays, const Py_buffer *held, Py_buffer *views, Chunk *chunks, Index count)
{
    static const Wanted wanted = {"chunks", UINT32, 0, 0};
    const int64_t *base = held[BASE].buf, *number = held[NUMBER].buf;
    for (Index i = 0; i < count; i++) {
        PyObject *array = PySequence_GetItem(arrays, i);
        int failed = !array || get_array(array, &views[i], &wanted);
        Py_XDECREF(array);
        if (failed) {
            release(views, (int)i);
            return -1;
        }
        int64_t first = READ(int64_t, base + i);
        Chunk *chunk = &chunks[i];
        *chunk = (Chunk){views[i].buf, views[i].len / 4 - 1, first, READ(int64_t, number + i), 0, 0};
        int wrong = chunk->documents < 1 || first < 0 || first > INT64_MAX / 2 ||
                    chunk->number < 0 || chunk->number > INT64_MAX / 2;
        if (!wrong) {
            chunk->low = first + READ(uint32_t, chunk->offsets);
            chunk->high = first + READ(uint32_t, chunk->offsets + chunk->documents);
            wrong = chunk->low > chunk->high || (i && chunk->low < chunks[i - 1].low);
        }
        for (int j = EDGES; j < ARRAYS && !wrong; j++)
            wrong = share(&views[i], &held[j]);
        if (wrong) {
            PyErr_Format(PyExc_ValueError, "chunks[%zd]: not after the one before it, or not apart", i);
            release(views, (int)i + 1);
            return -1;
        }
    }
    return count;
}

PyObject *
cut(PyObject *Py_UNUSED(module), PyObject *const *args, Index nargs)
{
    Py_buffer held[ARRAYS], *views = NULL;
    Chunk *chunks = NULL;
    PyObject *result = NULL;
    Index wrong = -1;
    if (wrong_count("cut", nargs, ARRAYS + 1) || get_arrays(args + 1, held, WANTED, ARRAYS))
        return NULL;
    Index count = PySequence_Size(args[0]), ranges = held[START].len / 8;
    Index room = held[DOCUMENT].len / 8;
    if (count < 0)
        goto end;
    if (held[BASE].len / 8 != count || held[NUMBER].len / 8 != count || held[STOP].len / 8 != ranges ||
        held[EDGES].len / 8 != ranges + 1 || held[BEGIN].len / 8 != room ||
        held[LENGTH].len / 8 != room || held[ADDRESS].len / 8 != room || count > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "chunks to address: not of one length");
        goto end;
    }
    views = PyMem_Calloc((size_t)count + 1, sizeof *views);
    chunks = PyMem_Calloc((size_t)count + 1, sizeof *chunks);
    if (!views || !chunks) {
        PyErr_NoMemory();
        goto end;
    }
    if (get_chunks(args[0], held, views, chunks, count) < 0)
        goto end;
    Pieces out = {held[DOCUMENT].buf, held[BEGIN].buf, held[LENGTH].buf, held[ADDRESS].buf, room, 0};
    const int64_t *start = held[START].buf, *stop = held[STOP].buf;
    int64_t *edges = held[EDGES].buf;
    Py_BEGIN_ALLOW_THREADS
    edges[0] = 0;
    for (Index i = 0; i < ranges && wrong < 0; i++) {
        if (walk(chunks, count, READ(int64_t, start + i), READ(int64_t, stop + i), &out))
            wrong = i;
        edges[i + 1] = out.count;
    }
    Py_END_ALLOW_THREADS
    if (wrong < 0)
        result = PyLong_FromSsize_t(out.count);
    else
        PyErr_Format(PyExc_IndexError, "start, stop: range %zd has tokens that are in no chunk", wrong);
    release(views, (int)count);
end:
    PyMem_Free(chunks);
    PyMem_Free(views);
    release(held, ARRAYS);
    return result;
}

/* -- gather: rows of a table ----------------------------------------------------------------- */

#define WIDEN(name, From)                                                                          \
    static void name(int64_t *restrict to, const char *restrict from, Index count, uint64_t add)   \
    {                                                                                              \
        for (Index i = 0; i < count; i++) {                                                        \
            From value;                                                                            \
            memcpy(&value, from + (Index)sizeof value * i, sizeof value);                          \
            to[i] = (int64_t)(value + add);                                                        \
        }                                                                                          \
    }

WIDEN(widen_8, uint8_t)
WIDEN(widen_16, uint16_t)
WIDEN(widen_32, uint32_t)
WIDEN(widen_64, uint64_t)

PyObject *
gather(PyObject *Py_UNUSED(module), PyObject *const *args, Index nargs)
{
    enum { TABLE, FIRST, COUNT, ADD, OUT, ALL };
    static const Wanted wanted[ALL] = {{"column", COLUMN, 0, 0}, {"first", INT64, 0, 0},
                                       {"count", INT64, 0, 0},   {"base", INT64, 0, 1},
                                       {"out", INT64, 1, 0}};
    Py_buffer held[ALL];
    if (wrong_count("gather", nargs, ALL) || get_arrays(args, held, wanted, ALL))
        return NULL;
    const int64_t *first = held[FIRST].buf, *counts = held[COUNT].buf, *base = held[ADD].buf;
    Index rows = held[FIRST].len / 8, item = held[TABLE].itemsize, wrong = -1, done = 0;
    Index total = held[TABLE].len / item, room = held[OUT].len / 8;
    if (held[COUNT].len / 8 != rows || (base && held[ADD].len / 8 != rows)) {
        PyErr_SetString(PyExc_ValueError, "first, count and base: not of one length");
        release(held, ALL);
        return NULL;
    }
    void (*widen)(int64_t *, const char *, Index, uint64_t) = item == 1   ? widen_8
                                                              : item == 2 ? widen_16
                                                              : item == 4 ? widen_32
                                                                          : widen_64;
    Py_BEGIN_ALLOW_THREADS
    for (Index i = 0; i < rows && wrong < 0; i++) {
        int64_t low = READ(int64_t, first + i), count = READ(int64_t, counts + i);
        if (low < 0 || count < 0 || low > total || count > total - low || count > room - done) {
            wrong = i;
            break;
        }
        widen((int64_t *)held[OUT].buf + done, (const char *)held[TABLE].buf + low * item,
              (Index)count, base ? (uint64_t)READ(int64_t, base + i) : 0);
        done += (Index)count;
    }
    Py_END_ALLOW_THREADS
    release(held, ALL);
    if (wrong >= 0 || done != room) {
        PyErr_Format(PyExc_IndexError, "first, count, out: row %zd is not in the column, or no room",
                     wrong >= 0 ? wrong : rows);
        return NULL;
    }
    Py_RETURN_NONE;
}
