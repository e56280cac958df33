/* Compiled packers: items in the order they are placed → the bin of each. See
 * tokenloom.layout.pack.packers for the rules and for the same packers in Python.
 */
#include "_native.h"

#include <stdlib.h>

/* The input of both packers: items [count] of 0 to `capacity`, at most `most` in a bin. */
typedef struct {
    Py_buffer held[2];
    int64_t *length; /* a copy: what was checked cannot change */
    int64_t *bin;
    Index count, capacity, most;
} Job;

enum { LENGTHS, OUT };

/* Copy the lengths, and lower the capacity to their sum: more room than that changes nothing. */
static int
take_lengths(Job *job)
{
    const int64_t *all = job->held[LENGTHS].buf;
    int64_t sum = 0;
    for (Index i = 0; i < job->count; i++) {
        int64_t length = READ(int64_t, all + i);
        if (length < 0 || length > job->capacity) {
            PyErr_Format(PyExc_ValueError, "lengths: item %zd is %lld, allowed: 0 to capacity, %zd",
                         i, (long long)length, job->capacity);
            return -1;
        }
        job->length[i] = length;
        sum += length; /* below 2^62: both factors are below 2^31 */
    }
    if (sum < job->capacity)
        job->capacity = sum ? (Index)sum : 1;
    return 0;
}

static int
take_job(const char *what, PyObject *const *args, Index nargs, Job *job)
{
    static const Wanted wanted[] = {{"lengths", INT64, 0, 0}, {"out", INT64, 1, 0}};
    if (wrong_count(what, nargs, 4) ||
        get_int(args[1], &job->capacity, 1, INT32_MAX, "capacity") ||
        get_int(args[2], &job->most, 1, PY_SSIZE_T_MAX, "most"))
        return -1;
    PyObject *arrays[] = {args[0], args[3]};
    if (get_arrays(arrays, job->held, wanted, 2))
        return -1;
    job->bin = job->held[OUT].buf;
    job->count = job->held[LENGTHS].len / 8;
    job->length = NULL;
    if (job->held[OUT].len != job->held[LENGTHS].len || job->count > INT32_MAX)
        PyErr_Format(PyExc_ValueError, "out: %zd items, lengths: %zd; allowed: as many, below 2^31",
                     job->held[OUT].len / 8, job->count);
    else if (!(job->length = malloc(((size_t)job->count + 1) * sizeof(int64_t))))
        PyErr_NoMemory();
    else if (!take_lengths(job))
        return 0;
    free(job->length);
    release(job->held, 2);
    return -1;
}

static PyObject *
answer(Job *job, Index bins)
{
    free(job->length);
    release(job->held, 2);
    return bins < 0 ? PyErr_NoMemory() : PyLong_FromSsize_t(bins);
}

/* -- best fit: bins by the room they have left, a heap of the bins with equal room ------------ */

typedef struct {
    int32_t *bin; /* a heap with the newest bin on top */
    Index count, size;
} Heap;

static int
heap_push(Heap *heap, int32_t bin)
{
    if (heap->count == heap->size) {
        Index size = heap->size ? 2 * heap->size : 4;
        int32_t *more = realloc(heap->bin, (size_t)size * sizeof(int32_t));
        if (!more)
            return -1;
        heap->bin = more;
        heap->size = size;
    }
    Index at = heap->count++;
    while (at && heap->bin[(at - 1) / 2] < bin) {
        heap->bin[at] = heap->bin[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap->bin[at] = bin;
    return 0;
}

static int32_t
heap_pop(Heap *heap)
{
    int32_t top = heap->bin[0], last = heap->bin[--heap->count];
    Index at = 0;
    for (;;) {
        Index child = 2 * at + 1;
        if (child >= heap->count)
            break;
        if (child + 1 < heap->count && heap->bin[child + 1] > heap->bin[child])
            child++;
        if (heap->bin[child] <= last)
            break;
        heap->bin[at] = heap->bin[child];
        at = child;
    }
    heap->bin[at] = last;
    return top;
}

/* `bits` marks the rooms that some bin has, `words` the non-zero words of `bits`: a fast search. */
static Index
next_room(const uint64_t *bits, const uint64_t *words, Index from, Index capacity)
{
    if (from > capacity)
        return -1;
    uint64_t here = bits[from >> 6] >> (from & 63);
    if (here)
        return from + __builtin_ctzll(here);
    Index word = (from >> 6) + 1, last = capacity >> 6;
    for (Index group = word >> 6; word <= last; word = ++group << 6) {
        uint64_t there = words[group] >> (word & 63);
        if (there) {
            word += __builtin_ctzll(there);
            return (word << 6) + __builtin_ctzll(bits[word]);
        }
    }
    return -1;
}

static Index
run_best_fit(Job *job)
{
    Index rooms = job->capacity + 1, bins = 0;
    Heap *heaps = calloc((size_t)rooms, sizeof(Heap));
    uint64_t *bits = calloc((size_t)(rooms >> 6) + 1, 8);
    uint64_t *words = calloc((size_t)(rooms >> 12) + 1, 8);
    int32_t *held = calloc((size_t)job->count + 1, sizeof(int32_t));
    int32_t *used = malloc(((size_t)job->count + 1) * sizeof(int32_t)); /* rooms that got memory */
    Index uses = 0;
    if (!heaps || !bits || !words || !held || !used)
        bins = -1;
    for (Index i = 0; bins >= 0 && i < job->count; i++) {
        Index length = job->length[i], room = next_room(bits, words, length, job->capacity);
        int32_t bin;
        if (room < 0) {
            bin = (int32_t)bins++;
            room = job->capacity;
        } else {
            bin = heap_pop(&heaps[room]);
            if (!heaps[room].count) {
                bits[room >> 6] &= ~(1ULL << (room & 63));
                if (!bits[room >> 6])
                    words[room >> 12] &= ~(1ULL << ((room >> 6) & 63));
            }
        }
        job->bin[i] = bin;
        if (++held[bin] == job->most)
            continue; /* the bin is closed */
        room -= length;
        if (!heaps[room].size)
            used[uses++] = (int32_t)room;
        if (heap_push(&heaps[room], bin))
            bins = -1;
        bits[room >> 6] |= 1ULL << (room & 63);
        words[room >> 12] |= 1ULL << ((room >> 6) & 63);
    }
    while (uses) /* not all rooms: most of their memory was never touched */
        free(heaps[used[--uses]].bin);
    free(used);
    free(heaps);
    free(bits);
    free(words);
    free(held);
    return bins;
}

PyObject *
best_fit(PyObject *Py_UNUSED(module), PyObject *const *args, Index nargs)
{
    Job job;
    Index bins;
    if (take_job("best_fit", args, nargs, &job))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    bins = run_best_fit(&job);
    Py_END_ALLOW_THREADS
    return answer(&job, bins);
}

/* -- first fit: a tree over the bins; each node holds the most room below it ------------------ */

static Index
run_first_fit(Job *job)
{
    const int64_t *restrict lengths = job->length;
    int64_t *restrict out = job->bin;
    const Index most = job->most;
    Index leaves = 1, bins = 0;
    while (leaves < job->count)
        leaves *= 2;
    int32_t *room = malloc((size_t)(2 * leaves) * sizeof(int32_t));
    int32_t *held = calloc((size_t)job->count + 1, sizeof(int32_t));
    if (!room || !held)
        bins = -1;
    for (Index node = 1; bins >= 0 && node < 2 * leaves; node++)
        room[node] = (int32_t)job->capacity; /* a bin that is not open yet has all its room */
    for (Index i = 0; bins >= 0 && i < job->count; i++) {
        int32_t length = (int32_t)lengths[i];
        Index node = 1;
        while (node < leaves)
            node = 2 * node + (room[2 * node] < length);
        Index bin = node - leaves;
        out[i] = bin;
        bins = bin >= bins ? bin + 1 : bins;
        room[node] = ++held[bin] == most ? -1 : room[node] - length;
        for (node /= 2; node; node /= 2) {
            int32_t a = room[2 * node], b = room[2 * node + 1];
            room[node] = a > b ? a : b;
        }
    }
    free(room);
    free(held);
    return bins;
}

PyObject *
first_fit(PyObject *Py_UNUSED(module), PyObject *const *args, Index nargs)
{
    Job job;
    Index bins;
    if (take_job("first_fit", args, nargs, &job))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    bins = run_first_fit(&job);
    Py_END_ALLOW_THREADS
    return answer(&job, bins);
}
