/* The compiled loops over cells: copy runs of tokens into cells, and paint tiles into arrays.
 *
 * One pass over the cells of a batch: a cache line of tokens is copied and widened, and beside it the
 * same stretch of every other array is painted. For each line that is copied, memory is asked for
 * another one further ahead: where all runs lie is known, so that nothing is waited for.
 */
#include "_native.h"
#include "_cells.h"

enum { LINES_AHEAD = 64 }; /* lines asked for ahead of time */

/* -- loops ---------------------------------------------------------------------------------- */

/* Move on to the next run. */
static inline void
turn(Ahead *ahead)
{
    const Run *run = ahead->run;
    if (run == ahead->end)
        return;
    const char *from = run->payload ? run->payload->map.begin : run->from;
    if (run->payload && from)
        from += run->offset;
    ahead->at = (const char *)((uintptr_t)from & ~(uintptr_t)(LINE - 1));
    ahead->stop = from ? from + run->length * bytes_of(run->stored) : from;
    ahead->run++;
}

/* Ask memory for one more line. */
static inline void
ask(Ahead *ahead)
{
    __builtin_prefetch(ahead->at, 0, 3);
    if (ahead->stop - ahead->at > LINE)
        ahead->at += LINE;
    else
        turn(ahead);
}

/* Begin ahead of some run. */
static inline void
start_ahead(Ahead *ahead, const Run *run, const Run *end)
{
    *ahead = (Ahead){NULL, NULL, run, end};
    for (int i = 0; i <= LINES_AHEAD; i++)
        ask(ahead);
}

/* A loop over tokens, a line of them at a time: loops of a known length are faster, and each asks for
 * one line. What is left, and a first line that is not whole, ask for one more. */
#define BY_LINES(From, step)                                                                       \
    const Index block = LINE / (Index)sizeof(From);                                                \
    Index i = 0;                                                                                   \
    if ((uintptr_t)from % LINE)                                                                    \
        ask(ahead);                                                                                \
    for (; i + block <= count; i += block) {                                                       \
        ask(ahead);                                                                                \
        for (Index k = i; k < i + block; k++) {                                                    \
            From token;                                                                            \
            memcpy(&token, from + (Index)sizeof token * k, sizeof token); /* an unaligned load */  \
            step                                                                                   \
        }                                                                                          \
    }                                                                                              \
    if (i < count)                                                                                 \
        ask(ahead);                                                                                \
    for (Index k = i; k < count; k++) {                                                            \
        From token;                                                                                \
        memcpy(&token, from + (Index)sizeof token * k, sizeof token);                              \
        step                                                                                       \
    }

#define WIDEN(name, From, To)                                                                      \
    static void name(To *restrict to, const char *restrict from, Index count, Ahead *ahead)        \
    {                                                                                              \
        BY_LINES(From, to[k] = (To)token;)                                                         \
    }

WIDEN(short_to_32, uint16_t, int32_t)
WIDEN(whole_to_32, uint32_t, int32_t)
WIDEN(short_to_64, uint16_t, int64_t)
WIDEN(signed_to_64, int32_t, int64_t)
WIDEN(unsigned_to_64, uint32_t, int64_t)

void
copy_tokens(char *to, const char *from, Index count, Stored stored, Index wide, Ahead *ahead)
{
    if (wide == 4 && stored == SHORT)
        short_to_32((int32_t *)to, from, count, ahead);
    else if (wide == 4)
        whole_to_32((int32_t *)to, from, count, ahead);
    else if (stored == SHORT)
        short_to_64((int64_t *)to, from, count, ahead);
    else if (stored == SIGNED)
        signed_to_64((int64_t *)to, from, count, ahead);
    else
        unsigned_to_64((int64_t *)to, from, count, ahead);
}

static void
set_all(int32_t *restrict to, Index count, int32_t value)
{
    for (Index i = 0; i < count; i++)
        to[i] = value;
}

static void
set_cells(char *cells, Index at, Index count, int32_t value, Index wide)
{
    if (wide == 4) {
        set_all((int32_t *)cells + at, count, value);
    } else {
        int64_t *restrict to = (int64_t *)cells + at;
        for (Index i = 0; i < count; i++)
            to[i] = value;
    }
}

static void
count_up(int32_t *restrict to, Index count)
{
    for (Index i = 0; i < count; i++)
        to[i] = (int32_t)i;
}

/* -- tiles ---------------------------------------------------------------------------------- */

/* The arrays of a batch; those not wanted are NULL. Tokens and labels have cells of `wide` bytes. */
typedef struct {
    char *tokens, *labels, *mask;
    int32_t *segments, *positions;
    Index wide;
    int32_t ignore;
} Arrays;

/* Paint a tile: everything but its tokens. */
static inline void
paint_tile(const Arrays *to, Index at, Index count, int32_t segment)
{
    if (!count)
        return;
    if (to->labels) {
        if (segment) {
            memcpy(to->labels + at * to->wide, to->tokens + at * to->wide,
                   (size_t)(count * to->wide));
            set_cells(to->labels, at, 1, to->ignore, to->wide);
        } else {
            set_cells(to->labels, at, count, to->ignore, to->wide);
        }
    }
    if (to->segments)
        set_all(to->segments + at, count, segment);
    if (to->positions)
        count_up(to->positions + at, count);
    if (to->mask) {
        memset(to->mask + at, segment != 0, (size_t)count);
        to->mask[at + count - 1] = 0;
    }
}

/* A whole tile of a document in one loop, where every array is wanted and its tokens are in memory.
 * The pointers are parameters because compilers believe `restrict` most readily there. */
#define WEAVE_TILE(name, From, To)                                                                 \
    static inline void name##_loop(To *restrict tokens, To *restrict labels,                       \
                                   int32_t *restrict segments, int32_t *restrict positions,        \
                                   const char *restrict from, Index count, int32_t segment,        \
                                   Ahead *ahead)                                                   \
    {                                                                                              \
        BY_LINES(From, tokens[k] = (To)token; labels[k] = (To)token; segments[k] = segment;        \
                 positions[k] = (int32_t)k;)                                                       \
    }                                                                                              \
    static void name(const Arrays *to, Index at, Index count, Index lines, int32_t segment,        \
                     const char *from, Ahead *ahead)                                               \
    {                                                                                              \
        To *labels = (To *)to->labels + at;                                                        \
        name##_loop((To *)to->tokens + at, labels, to->segments + at, to->positions + at, from,    \
                    lines, segment, ahead);                                                        \
        labels[0] = to->ignore;                                                                    \
        memset(to->mask + at, 1, (size_t)count);                                                   \
        to->mask[at + count - 1] = 0;                                                              \
    }

WEAVE_TILE(weave_short_32, uint16_t, int32_t)
WEAVE_TILE(weave_whole_32, uint32_t, int32_t)
WEAVE_TILE(weave_short_64, uint16_t, int64_t)
WEAVE_TILE(weave_signed_64, int32_t, int64_t)
WEAVE_TILE(weave_unsigned_64, uint32_t, int64_t)

static inline void
weave_tile(const Arrays *to, Index at, Index count, Index lines, int32_t segment, const char *from,
           Stored stored, Ahead *ahead)
{
    if (to->wide == 4 && stored == SHORT)
        weave_short_32(to, at, count, lines, segment, from, ahead);
    else if (to->wide == 4)
        weave_whole_32(to, at, count, lines, segment, from, ahead);
    else if (stored == SHORT)
        weave_short_64(to, at, count, lines, segment, from, ahead);
    else if (stored == SIGNED)
        weave_signed_64(to, at, count, lines, segment, from, ahead);
    else
        weave_unsigned_64(to, at, count, lines, segment, from, ahead);
}

/* Some tiles: those of the cells from `base` on. */
typedef struct {
    const int64_t *first, *length;
    const int32_t *segment;
    Index count;
    int64_t base;
} Tiles;

/* Whether the tiles cover the cells, one after the other. No step needs the one before it, so this
 * takes a fraction of a nanosecond a tile: signs of `bad` and bits of `gap` collect what is wrong. */
static int
cover(const Tiles *tiles, Index cells)
{
    uint64_t bad, gap, end = (uint64_t)cells, base = (uint64_t)tiles->base;
    const int64_t *first = tiles->first, *length = tiles->length;
    Index last = tiles->count - 1;
    if (last < 0)
        return cells == 0;
    uint64_t count = (uint64_t)length[last];
    bad = count | (end - count); /* negative, or more than all cells */
    gap = ((uint64_t)first[0] - base) | (((uint64_t)first[last] + count - base) ^ end);
    for (Index i = 0; i < last; i++) {
        count = (uint64_t)length[i];
        bad |= count | (end - count);
        gap |= ((uint64_t)first[i] + count) ^ (uint64_t)first[i + 1];
    }
    return !(bad >> 63) && !gap;
}

/* An exception about the first tile that is not where it should be. */
static void
misplaced(const Tiles *tiles, Index cells)
{
    Index i = 0, done = 0;
    for (; i < tiles->count; i++) {
        int64_t count = READ(int64_t, tiles->length + i), first = READ(int64_t, tiles->first + i);
        if ((uint64_t)first - (uint64_t)tiles->base != (uint64_t)done || count < 0 ||
            count > cells - done)
            break;
        done += (Index)count;
    }
    PyErr_Format(PyExc_IndexError, "first, length: tile %zd: tiles cover %zd cells of %zd", i, done,
                 cells);
}

/* -- copying --------------------------------------------------------------------------------- */

/* Where `count` tokens of a run can be read without looking again; NULL if they must be read from a
 * file or compared first. */
static inline const char *
tokens_of(const Run *run, Index done, Index count)
{
    Index item = bytes_of(run->stored);
    return run->payload ? in_map(run->payload, run->offset + done * item, count * item)
                        : run->from + done * item;
}

/* How many tokens of a run to copy where `count` are wanted and `room` cells are free: up to the end of
 * a line, if that may be read. What is written too much is overwritten by what comes next, and a loop
 * over whole lines has no rest, which would take longer than a short document. */
static inline Index
in_lines(const Run *run, Index count, Index room)
{
    Index block = LINE / bytes_of(run->stored), lines = (count + block - 1) / block * block;
    return run->padded && lines <= room ? lines : count;
}

/* Whether a cell is zero. */
static inline int
is_zero(const char *cell, Index wide)
{
    int64_t value = 0;
    memcpy(&value, cell, (size_t)wide);
    return !value;
}

/* Write cells [at, stop) of `room`, and perhaps some after them. The part's first run is the first that does not end before them; it is
 * moved on to the first that does not end before `stop`. -1 with `trouble` if a file failed. */
static inline int
copy_cells(const Copier *self, Part *part, char *cells, Index at, Index stop, Index room, Index wide,
           Ahead *ahead, Trouble *trouble)
{
    while (at < stop) {
        const Run *run = &self->runs[part->first];
        Index start = part->first < part->last ? (Index)(run->cell - part->base) : stop;
        if (start > at) {
            Index end = start < stop ? start : stop;
            set_cells(cells, at, end - at, part->filler, wide);
            at = end;
            continue;
        }
        Index done = at - start, count = (Index)run->length - done;
        if (count > stop - at)
            count = stop - at;
        char *to = cells + at * wide;
        const char *from = tokens_of(run, done, count);
        if (from)
            copy_tokens(to, from, in_lines(run, count, room - at), run->stored, wide, ahead);
        else if (copy_stored(to, run->payload, run->offset + done * bytes_of(run->stored), count, wide,
                             ahead, trouble))
            return -1;
        trouble->doubt |= from && run->payload && count && is_zero(to + (count - 1) * wide, wide);
        at += count;
        part->first += done + count == run->length;
    }
    return 0;
}

/* A batch to be made: what to copy, what to paint, and what came of it. */
typedef struct {
    const Copier *runs;
    Part part;
    Tiles tiles;
    Arrays arrays;
    Index cells;
    int done, trained;
    Trouble trouble;
} Work;

static void
do_fill(void *given)
{
    Work *work = given;
    Ahead ahead;
    start_ahead(&ahead, work->runs->runs + work->part.first, work->runs->runs + work->runs->total);
    work->done = !copy_cells(work->runs, &work->part, work->arrays.tokens, 0, work->cells,
                             work->cells, work->arrays.wide, &ahead, &work->trouble);
}

/* Do some work with the maps guarded; what went wrong with a payload, or NULL for nothing. */
static PyObject *
trouble_of(const Copier *self, Work *work, void (*what)(void *))
{
    const char *where = NULL;
    int fault;
    memset(&work->trouble, 0, sizeof work->trouble);
    Py_BEGIN_ALLOW_THREADS
    fault = guarded(self->maps, self->mapped, what, work, &where);
    Py_END_ALLOW_THREADS
    Trouble *trouble = &work->trouble;
    for (Index i = 0; i < self->count && (fault || trouble->doubt) && !trouble->payload; i++) {
        const Payload *payload = self->held[i].payload;
        if (payload && fault && where >= payload->map.begin && where < payload->map.end)
            *trouble = (Trouble){payload, (where - payload->map.begin) / PAGE, GONE, 0};
        else if (payload && !fault && is_cut(payload, &trouble->page))
            *trouble = (Trouble){payload, trouble->page, GONE, 0};
    }
    if (!trouble->payload)
        return NULL;
    return Py_BuildValue("OLi", trouble->payload, (long long)trouble->page, trouble->how);
}

PyObject *
copier_fill(Copier *self, PyObject *const *args, Index nargs)
{
    static const Wanted wanted = {"out", CELLS, 1, 0};
    Py_buffer out;
    Work work = {.runs = self};
    PyObject *trouble = NULL;
    if (wrong_count("fill", nargs, 5) || get_part(self, args + 1, &work.part) ||
        get_array(args[0], &out, &wanted))
        return NULL;
    work.cells = out.len / out.itemsize;
    work.arrays.tokens = out.buf;
    work.arrays.wide = out.itemsize;
    int failed = check_apart(self, &out, "out") || check_room(self, &work.part, work.cells);
    if (!failed)
        trouble = trouble_of(self, &work, do_fill);
    PyBuffer_Release(&out);
    if (failed || trouble || PyErr_Occurred())
        return trouble;
    Py_RETURN_NONE;
}

enum { FIRST, LENGTH, SEGMENT, SEGMENTS, POSITIONS, MASK, TOKENS_IN, LABELS, ARRAYS };

static const Wanted PAINT[ARRAYS] = {
    {"first", INT64, 0, 0},       {"length", INT64, 0, 0},      {"segment", INT32, 0, 0},
    {"segment_ids", INT32, 1, 1}, {"position_ids", INT32, 1, 1}, {"loss_mask", BOOL, 1, 1},
    {"tokens", CELLS, 0, 1},      {"labels", CELLS, 1, 1},
};

static const Wanted WEAVE[ARRAYS] = {
    {"first", INT64, 0, 0},       {"length", INT64, 0, 0},      {"segment", INT32, 0, 0},
    {"segment_ids", INT32, 1, 1}, {"position_ids", INT32, 1, 1}, {"loss_mask", BOOL, 1, 1},
    {"tokens", CELLS, 1, 0},      {"labels", CELLS, 1, 1},
};

/* Tiles and arrays of one length each; -1 with an exception if they are not. `cells` is -1 if there
 * is no array at all. */
static int
sizes_of(const Py_buffer *held, Tiles *tiles, Arrays *arrays, Index *cells)
{
    tiles->first = held[FIRST].buf;
    tiles->length = held[LENGTH].buf;
    tiles->segment = held[SEGMENT].buf;
    tiles->count = held[FIRST].len / 8;
    *cells = -1;
    for (int i = LENGTH; i < ARRAYS; i++) {
        if (!held[i].obj)
            continue;
        Index items = held[i].len / held[i].itemsize, *wanted = i <= SEGMENT ? &tiles->count : cells;
        if (*wanted == -1)
            *wanted = items;
        if (items != *wanted) {
            PyErr_Format(PyExc_ValueError, "%s: %zd items, wanted %zd", PAINT[i].name, items,
                         *wanted);
            return -1;
        }
    }
    if (held[LABELS].obj && held[TOKENS_IN].obj && held[LABELS].itemsize != held[TOKENS_IN].itemsize) {
        PyErr_SetString(PyExc_TypeError, "tokens and labels: not of one type");
        return -1;
    }
    arrays->tokens = held[TOKENS_IN].buf;
    arrays->labels = held[LABELS].buf;
    arrays->mask = held[MASK].buf;
    arrays->segments = held[SEGMENTS].buf;
    arrays->positions = held[POSITIONS].buf;
    arrays->wide = held[TOKENS_IN].obj ? held[TOKENS_IN].itemsize : 4;
    return 0;
}

/* Paint all arrays of a tile of a document from a single run, if that has all its tokens in memory;
 * whether it did. */
static inline int
weave_run(Work *work, Index at, Index count, int32_t segment, Ahead *ahead)
{
    Part *part = &work->part;
    const Run *run = &work->runs->runs[part->first];
    Index done = part->first < part->last ? at - (Index)(run->cell - part->base) : -1;
    if (!segment || !count || done < 0 || count > run->length - done)
        return 0;
    const char *from = tokens_of(run, done, count);
    if (!from)
        return 0;
    const Arrays *to = &work->arrays;
    weave_tile(to, at, count, in_lines(run, count, work->cells - at), segment, from, run->stored, ahead);
    work->trouble.doubt |= run->payload && is_zero(to->tokens + (at + count - 1) * to->wide, to->wide);
    part->first += done + count == run->length;
    return 1;
}

/* Paint all tiles, after copying the tokens of each if there are runs; `done` tells whether they
 * covered all cells, and `trained` whether some tile predicts a token of its own. Another thread may
 * have changed a tile, so its length is read once and checked here. */
static void
do_tiles(void *given)
{
    Work *work = given;
    const Tiles *tiles = &work->tiles;
    const Arrays *arrays = &work->arrays;
    int every = work->runs && arrays->labels && arrays->mask && arrays->segments && arrays->positions;
    Ahead ahead;
    if (work->runs)
        start_ahead(&ahead, work->runs->runs + work->part.first,
                    work->runs->runs + work->runs->total);
    Index at = 0;
    for (Index i = 0; i < tiles->count; i++) {
        int64_t count = READ(int64_t, tiles->length + i);
        int32_t segment = READ(int32_t, tiles->segment + i);
        if (count < 0 || count > work->cells - at)
            return;
        if (!every || !weave_run(work, at, (Index)count, segment, &ahead)) {
            if (work->runs && copy_cells(work->runs, &work->part, arrays->tokens, at,
                                         at + (Index)count, work->cells, arrays->wide, &ahead,
                                         &work->trouble))
                return;
            paint_tile(arrays, at, (Index)count, segment);
        }
        work->trained |= segment && count > 1;
        at += (Index)count;
    }
    work->done = at == work->cells;
}

PyObject *
copier_weave(Copier *self, PyObject *const *args, Index nargs)
{
    Py_buffer held[ARRAYS];
    Index tile, last, ignore, start;
    Work work = {.runs = self};
    PyObject *result = NULL;
    if (wrong_count("weave", nargs, 8 + ARRAYS) || get_part(self, args, &work.part) ||
        get_int(args[4], &tile, 0, PY_SSIZE_T_MAX, "tile") ||
        get_int(args[5], &last, 0, PY_SSIZE_T_MAX, "tiles") ||
        get_int(args[6], &start, PY_SSIZE_T_MIN, PY_SSIZE_T_MAX, "start") ||
        get_int(args[7], &ignore, INT32_MIN, INT32_MAX, "ignore") ||
        get_arrays(args + 8, held, WEAVE, ARRAYS))
        return NULL;
    if (sizes_of(held, &work.tiles, &work.arrays, &work.cells) ||
        check_room(self, &work.part, work.cells))
        goto end;
    for (int i = SEGMENTS; i < ARRAYS; i++)
        if (check_apart(self, &held[i], WEAVE[i].name))
            goto end;
    if (tile > last || last > work.tiles.count) {
        PyErr_Format(PyExc_IndexError, "tile, tiles: tiles %zd to %zd of %zd", tile, last,
                     work.tiles.count);
        goto end;
    }
    work.arrays.ignore = (int32_t)ignore;
    work.tiles = (Tiles){work.tiles.first + tile, work.tiles.length + tile,
                         work.tiles.segment + tile, last - tile, start};
    if (cover(&work.tiles, work.cells))
        result = trouble_of(self, &work, do_tiles);
    if (!result && !PyErr_Occurred()) {
        if (work.done)
            result = PyBool_FromLong(work.trained);
        else
            misplaced(&work.tiles, work.cells);
    }
end:
    release(held, ARRAYS);
    return result;
}

/* -- paint: tiles into arrays ---------------------------------------------------------------- */

PyObject *
paint(PyObject *Py_UNUSED(module), PyObject *const *args, Index nargs)
{
    Py_buffer held[ARRAYS];
    Index ignore;
    Work work = {.runs = NULL};
    if (wrong_count("paint", nargs, ARRAYS + 1) ||
        get_int(args[ARRAYS], &ignore, INT32_MIN, INT32_MAX, "ignore") ||
        get_arrays(args, held, PAINT, ARRAYS))
        return NULL;
    if (sizes_of(held, &work.tiles, &work.arrays, &work.cells))
        goto end;
    if (!held[TOKENS_IN].obj != !held[LABELS].obj) {
        PyErr_SetString(PyExc_ValueError, "tokens and labels: one without the other");
        goto end;
    }
    work.arrays.ignore = (int32_t)ignore;
    if (work.cells == -1) { /* nothing to paint */
        work.done = 1;
        goto end;
    }
    if (cover(&work.tiles, work.cells)) {
        Py_BEGIN_ALLOW_THREADS
        do_tiles(&work);
        Py_END_ALLOW_THREADS
    }
    if (!work.done)
        misplaced(&work.tiles, work.cells);
end:
    release(held, ARRAYS);
    if (!work.done)
        return NULL;
    Py_RETURN_NONE;
}
