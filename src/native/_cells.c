/* The compiled loops over cells: copy runs of tokens into cells, and paint tiles into arrays.
 *
 * One pass over the cells of a batch: the tokens of a tile are copied and widened, and while they
 * are in the fastest cache every other array of the tile is painted. Where the next runs lie is
 * known, so their first bytes are asked of memory before they are needed.
 */
#include "_native.h"
#include "_cells.h"

enum { AHEAD_RUNS = 4, AHEAD_BYTES = 1024 }; /* how far ahead, and how much, memory is asked for */

/* -- loops ---------------------------------------------------------------------------------- */

#define WIDEN(name, From, To)                                                                     \
    static void name(To *restrict to, const char *restrict from, Index count)                      \
    {                                                                                              \
        for (Index i = 0; i < count; i++) {                                                        \
            From token;                                                                            \
            memcpy(&token, from + (Index)sizeof token * i, sizeof token); /* an unaligned load */  \
            to[i] = (To)token;                                                                     \
        }                                                                                          \
    }

WIDEN(short_to_32, uint16_t, int32_t)
WIDEN(short_to_64, uint16_t, int64_t)
WIDEN(signed_to_64, int32_t, int64_t)
WIDEN(unsigned_to_64, uint32_t, int64_t)

void
copy_tokens(char *to, const char *from, Index count, Stored stored, Index wide)
{
    if (wide == 4) {
        if (stored == SHORT)
            short_to_32((int32_t *)to, from, count);
        else
            memcpy(to, from, (size_t)count * 4);
    } else if (stored == SHORT) {
        short_to_64((int64_t *)to, from, count);
    } else if (stored == SIGNED) {
        signed_to_64((int64_t *)to, from, count);
    } else {
        unsigned_to_64((int64_t *)to, from, count);
    }
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

/* Ask memory for the first bytes of what is copied soon; the rest is fetched while copying. */
static inline void
prefetch(const char *from, Index bytes)
{
    if (bytes > AHEAD_BYTES)
        bytes = AHEAD_BYTES;
    for (Index i = 0; i < bytes; i += 64)
        __builtin_prefetch(from + i, 0, 3);
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

/* A whole tile of a document in one loop, for the usual case: every array is wanted, cells of four
 * bytes, tokens of two in memory. Short documents gain most: there is one loop instead of five. */
static inline void
weave_tile(const Arrays *to, Index at, Index count, int32_t segment, const char *restrict from)
{
    int32_t *restrict tokens = (int32_t *)to->tokens + at, *restrict labels = (int32_t *)to->labels + at;
    int32_t *restrict segments = to->segments + at, *restrict positions = to->positions + at;
    for (Index i = 0; i < count; i++) {
        uint16_t token;
        memcpy(&token, from + 2 * i, 2);
        tokens[i] = token;
        labels[i] = token;
        segments[i] = segment;
        positions[i] = (int32_t)i;
    }
    labels[0] = to->ignore;
    memset(to->mask + at, 1, (size_t)count);
    to->mask[at + count - 1] = 0;
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

/* Ask memory for a run that comes soon. */
static inline void
prefetch_run(const Run *run)
{
    Index bytes = (Index)run->length * bytes_of(run->stored);
    if (!run->payload)
        prefetch(run->from, bytes);
    else if (run->payload->map.begin)
        prefetch(run->payload->map.begin + run->offset, bytes);
}

/* Write cells [at, stop). The part's first run is the first that does not end before them; it is
 * moved on to the first that does not end before `stop`. -1 with `trouble` if a file failed. */
static inline int
copy_cells(const Copier *self, Part *part, char *cells, Index at, Index stop, Index wide,
           Trouble *trouble)
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
        Index done = at - start, count = (Index)run->length - done, item = bytes_of(run->stored);
        if (!done && part->last - part->first > AHEAD_RUNS)
            prefetch_run(run + AHEAD_RUNS);
        if (count > stop - at)
            count = stop - at;
        if (!run->payload)
            copy_tokens(cells + at * wide, run->from + done * item, count, run->stored, wide);
        else if (copy_stored(cells + at * wide, run->payload, run->offset + done * item, count, wide,
                             trouble))
            return -1;
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
    work->done = !copy_cells(work->runs, &work->part, work->arrays.tokens, 0, work->cells,
                             work->arrays.wide, &work->trouble);
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

/* Paint all tiles, after copying the tokens of each if there are runs; `done` tells whether they
 * covered all cells, and `trained` whether some tile predicts a token of its own. Another thread may
 * have changed a tile, so its length is read once and checked here. */
static void
do_tiles(void *given)
{
    Work *work = given;
    const Tiles *tiles = &work->tiles;
    const Arrays *arrays = &work->arrays;
    int usual = work->runs && arrays->wide == 4 && arrays->labels && arrays->mask &&
                arrays->segments && arrays->positions;
    Index at = 0;
    for (Index i = 0; i < tiles->count; i++) {
        int64_t count = READ(int64_t, tiles->length + i);
        int32_t segment = READ(int32_t, tiles->segment + i);
        if (count < 0 || count > work->cells - at)
            return;
        if (usual && segment && count) {
            Part *part = &work->part;
            const Run *run = &work->runs->runs[part->first];
            Index done = part->first < part->last ? at - (Index)(run->cell - part->base) : -1;
            if (done >= 0 && count <= run->length - done && !run->payload && run->stored == SHORT) {
                if (part->last - part->first > AHEAD_RUNS && !done)
                    prefetch_run(run + AHEAD_RUNS);
                weave_tile(arrays, at, (Index)count, segment, run->from + 2 * done);
                part->first += done + count == run->length;
                work->trained |= count > 1;
                at += (Index)count;
                continue;
            }
        }
        if (work->runs && copy_cells(work->runs, &work->part, arrays->tokens, at, at + (Index)count,
                                     arrays->wide, &work->trouble))
            return;
        paint_tile(arrays, at, (Index)count, segment);
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
