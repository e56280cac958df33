/* The compiled loops over cells: copy runs of tokens into cells, and paint tiles into arrays. The
 * packers are in _packers.c, orders in _order.c, mixing in _merge.c, and what all do with their
 * arguments in _arguments.c.
 *
 * Optional: `tokenloom.native` says whether this module is available; without it NumPy code gives
 * the same bytes. It uses only Python's limited API and no NumPy headers, so arrays come as
 * buffers. No input is trusted: the rules are in _native.h.
 */
#include "_native.h"

#include <stdlib.h>

/* -- loops ---------------------------------------------------------------------------------- */

static void
copy_wide(int32_t *restrict to, const char *restrict from, Index count, Index item)
{
    if (item == 4) {
        memcpy(to, from, (size_t)count * 4);
        return;
    }
    for (Index i = 0; i < count; i++) {
        uint16_t token;
        memcpy(&token, from + 2 * i, 2); /* an unaligned load */
        to[i] = token;
    }
}

static void
set_all(int32_t *restrict to, Index count, int32_t value)
{
    for (Index i = 0; i < count; i++)
        to[i] = value;
}

static void
count_up(int32_t *restrict to, Index count)
{
    for (Index i = 0; i < count; i++)
        to[i] = (int32_t)i;
}

/* -- Copier: runs of tokens in buffers, checked once, copied part by part --------------------- */

typedef struct {
    const char *from;
    int64_t length, cell;
    Index item; /* bytes of a token */
} Run;

/* Memory that views lie in, from `begin` up to but not including `end`. */
typedef struct {
    uintptr_t begin, end;
} Stretch;

typedef struct {
    PyObject_HEAD
    Py_buffer *views;
    Index count; /* buffers held */
    Stretch *lent;   /* all memory of the views, ascending, with gaps between them */
    Index stretches;
    Run *runs;   /* nobody else has them, so they stay as they were checked */
    Index total; /* runs */
    int ascend;  /* whether every run ends before the cell of the next one */
} Copier;

static int
take_views(Copier *self, PyObject *arrays)
{
    static const Wanted view = {"tokens", TOKENS, 0, 0};
    char name[40];
    Index count = PySequence_Size(arrays);
    if (count < 0) {
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            PyErr_SetString(PyExc_TypeError, "views: allowed: a sequence of arrays");
        return -1;
    }
    if (!(self->views = PyMem_Calloc((size_t)count + 1, sizeof(Py_buffer))))
        return PyErr_NoMemory(), -1;
    for (Index i = 0; i < count; i++) {
        PyObject *array = PySequence_GetItem(arrays, i);
        if (!array)
            return -1;
        int failed = get_array(array, &self->views[i], &view);
        Py_DECREF(array);
        if (failed) {
            PyOS_snprintf(name, sizeof name, "views[%zd]", i);
            name_it(name);
            return -1;
        }
        self->count = i + 1;
    }
    return 0;
}

static int
by_begin(const void *one, const void *other)
{
    uintptr_t a = ((const Stretch *)one)->begin, b = ((const Stretch *)other)->begin;
    return (a > b) - (a < b);
}

/* Views are many and outputs are made one after the other: sorted once, they are searched. */
static int
sort_views(Copier *self)
{
    Index count = 0, last = -1;
    if (!(self->lent = PyMem_Calloc((size_t)self->count + 1, sizeof(Stretch))))
        return PyErr_NoMemory(), -1;
    for (Index i = 0; i < self->count; i++)
        if (self->views[i].len) {
            uintptr_t begin = (uintptr_t)self->views[i].buf;
            self->lent[count++] = (Stretch){begin, begin + (uintptr_t)self->views[i].len};
        }
    qsort(self->lent, (size_t)count, sizeof(Stretch), by_begin);
    for (Index i = 0; i < count; i++) {
        Stretch next = self->lent[i];
        if (last < 0 || next.begin > self->lent[last].end)
            self->lent[++last] = next;
        else if (next.end > self->lent[last].end)
            self->lent[last].end = next.end;
    }
    self->stretches = last + 1;
    return 0;
}

/* Whether an output shares a byte with a view: the last stretch that begins before its end tells. */
static int
is_lent(const Copier *self, const Py_buffer *out)
{
    uintptr_t begin = (uintptr_t)out->buf, end = begin + (uintptr_t)out->len;
    Index low = 0, high = self->stretches;
    while (low < high) {
        Index middle = low + (high - low) / 2;
        if (self->lent[middle].begin < end)
            low = middle + 1;
        else
            high = middle;
    }
    return out->len && low && self->lent[low - 1].end > begin;
}

static int
take_runs(Copier *self, PyObject *const *arrays)
{
    static const Wanted wanted[] = {
        {"which", INT64, 0, 0}, {"low", INT64, 0, 0}, {"length", INT64, 0, 0}, {"cell", INT64, 0, 0}};
    Py_buffer held[4];
    int failed = -1;
    if (get_arrays(arrays, held, wanted, 4))
        return -1;
    if (held[1].len != held[0].len || held[2].len != held[0].len || held[3].len != held[0].len) {
        PyErr_SetString(PyExc_ValueError, "which, low, length and cell: not of one length");
        goto done;
    }
    self->total = held[0].len / 8;
    if (!(self->runs = PyMem_Calloc((size_t)self->total + 1, sizeof(Run)))) {
        PyErr_NoMemory();
        goto done;
    }
    const int64_t *all_which = held[0].buf, *all_low = held[1].buf, *all_length = held[2].buf;
    const int64_t *all_cell = held[3].buf;
    const Py_buffer *views = self->views;
    const Index total = self->total, count = self->count;
    Run *runs = self->runs;
    int64_t end = INT64_MIN;
    int ascend = 1;
    for (Index i = 0; i < total; i++) {
        int64_t which = READ(int64_t, all_which + i), low = READ(int64_t, all_low + i);
        int64_t length = READ(int64_t, all_length + i), cell = READ(int64_t, all_cell + i);
        int inside = which >= 0 && which < count && low >= 0 && length >= 0;
        Index item = inside ? views[which].itemsize : 2;
        if (inside) {
            int64_t tokens = views[which].len >> (item == 2 ? 1 : 2);
            inside = low <= tokens && length <= tokens - low;
        }
        if (!inside) {
            PyErr_Format(PyExc_IndexError, "which, low, length: run %zd is not inside its view", i);
            goto done;
        }
        runs[i] = (Run){(const char *)views[which].buf + low * item, length, cell, item};
        ascend &= cell >= end;
        ascend &= !__builtin_add_overflow(cell, length, &end);
    }
    self->ascend = ascend;
    failed = 0;
done:
    release(held, 4);
    return failed;
}

static PyObject *
copier_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *arrays, *index[4];
    if (kwargs && PyDict_Size(kwargs)) {
        PyErr_SetString(PyExc_TypeError, "Copier takes no named arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "OOOOO", &arrays, &index[0], &index[1], &index[2], &index[3]))
        return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Copier *self = (Copier *)alloc(type, 0);
    if (!self)
        return NULL;
    if (take_views(self, arrays) || sort_views(self) || take_runs(self, index)) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void
copier_dealloc(Copier *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    while (self->count--)
        PyBuffer_Release(&self->views[self->count]);
    PyMem_Free(self->views);
    PyMem_Free(self->lent);
    PyMem_Free(self->runs);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

PyDoc_STRVAR(fill_doc,
    "fill(out, first, last, base, filler)\n--\n\n"
    "Copy runs [first, last) to their cells, counted from `base`; all others get `filler`.");

/* Whether a run starts at cell `done` or later, counted from `base`, and ends at `total` or before. */
static inline int
has_room(const Run *run, Index base, Index done, Index total)
{
    int64_t at;
    return !__builtin_sub_overflow(run->cell, (int64_t)base, &at) && at >= done && at <= total &&
           run->length <= total - at;
}

/* The first run of [first, last) that has no room; `last` if all have. */
static Index
first_without_room(const Copier *self, Index first, Index last, Index base, Index total)
{
    Index done = 0;
    if (self->ascend && first < last) /* then the outermost two tell */
        return !has_room(&self->runs[first], base, 0, total)      ? first
             : !has_room(&self->runs[last - 1], base, 0, total) ? last - 1 : last;
    for (Index i = first; i < last; i++) {
        const Run *run = &self->runs[i];
        if (!has_room(run, base, done, total))
            return i;
        done = run->cell - base + run->length;
    }
    return last;
}

static PyObject *
copier_fill(Copier *self, PyObject *const *args, Index nargs)
{
    static const Wanted wanted = {"out", INT32, 1, 0};
    Index first, last, base, filler, done = 0;
    Py_buffer out;
    if (wrong_count("fill", nargs, 5) ||
        get_int(args[1], &first, PY_SSIZE_T_MIN, PY_SSIZE_T_MAX, "first") ||
        get_int(args[2], &last, PY_SSIZE_T_MIN, PY_SSIZE_T_MAX, "last") ||
        get_int(args[3], &base, PY_SSIZE_T_MIN, PY_SSIZE_T_MAX, "base") ||
        get_int(args[4], &filler, INT32_MIN, INT32_MAX, "filler"))
        return NULL;
    if (first < 0 || first > last || last > self->total) {
        PyErr_Format(PyExc_IndexError, "first, last: runs %zd to %zd of %zd", first, last,
                     self->total);
        return NULL;
    }
    if (get_array(args[0], &out, &wanted))
        return NULL;
    if (is_lent(self, &out)) {
        Index i = 0;
        while (i < self->count - 1 && !share(&out, &self->views[i]))
            i++;
        PyErr_Format(PyExc_ValueError, "out: it shares memory with views[%zd]", i);
        PyBuffer_Release(&out);
        return NULL;
    }
    int32_t *cells = out.buf;
    Index total = out.len / 4, wrong = first_without_room(self, first, last, base, total);
    if (wrong < last) {
        PyErr_Format(PyExc_IndexError,
                     "out: run %zd overlaps the one before it or lies outside", wrong);
        PyBuffer_Release(&out);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    for (Index i = first; i < last; i++) {
        const Run *run = &self->runs[i];
        Index at = (Index)(run->cell - base);
        set_all(cells + done, at - done, (int32_t)filler);
        copy_wide(cells + at, run->from, run->length, run->item);
        done = at + run->length;
    }
    set_all(cells + done, total - done, (int32_t)filler);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&out);
    Py_RETURN_NONE;
}

static PyMethodDef copier_methods[] = {
    {"fill", (PyCFunction)(void (*)(void))copier_fill, METH_FASTCALL, fill_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot copier_slots[] = {
    {Py_tp_doc, "Copier(views, which, low, length, cell)\n--\n\nSee tokenloom.batch.cells.Copier."},
    {Py_tp_new, copier_new},
    {Py_tp_dealloc, copier_dealloc},
    {Py_tp_methods, copier_methods},
    {0, NULL},
};

static PyType_Spec copier_spec = {
    "tokenloom._native.Copier", sizeof(Copier), 0, Py_TPFLAGS_DEFAULT, copier_slots};

/* -- paint: tiles into arrays ---------------------------------------------------------------- */

enum { FIRST, LENGTH, SEGMENT, SEGMENTS, POSITIONS, MASK, TOKENS_IN, LABELS, ARRAYS };

static const Wanted ARRAY[ARRAYS] = {
    {"first", INT64, 0, 0},       {"length", INT64, 0, 0},      {"segment", INT32, 0, 0},
    {"segment_ids", INT32, 1, 1}, {"position_ids", INT32, 1, 1}, {"loss_mask", BOOL, 1, 1},
    {"tokens", INT32, 0, 1},      {"labels", INT32, 1, 1},
};

/* Arrays of one length; -1 with an exception if they are not, or a wanted one is missing. */
static int
sizes_of(const Py_buffer *held, Index *tiles, Index *cells)
{
    *tiles = held[FIRST].len / 8;
    *cells = -1;
    for (int i = LENGTH; i < ARRAYS; i++) {
        if (!held[i].obj)
            continue;
        Index items = held[i].len / held[i].itemsize, *wanted = i <= SEGMENT ? tiles : cells;
        if (*wanted == -1)
            *wanted = items;
        if (items != *wanted) {
            PyErr_Format(PyExc_ValueError, "%s: %zd items, wanted %zd", ARRAY[i].name, items,
                         *wanted);
            return -1;
        }
    }
    if (!held[TOKENS_IN].obj != !held[LABELS].obj) {
        PyErr_SetString(PyExc_ValueError, "tokens and labels: one without the other");
        return -1;
    }
    return 0;
}

/* Whether the tiles cover the cells, one after the other. No step needs the one before it, so this
 * takes a fraction of a nanosecond a tile: signs of `bad` and bits of `gap` collect what is wrong. */
static int
cover(const int64_t *first, const int64_t *length, Index tiles, Index cells)
{
    uint64_t bad, gap, end = (uint64_t)cells;
    if (!tiles)
        return cells == 0;
    uint64_t count = (uint64_t)length[tiles - 1];
    bad = count | (end - count); /* negative, or more than all cells */
    gap = (uint64_t)first[0] | (((uint64_t)first[tiles - 1] + count) ^ end);
    for (Index i = 0; i < tiles - 1; i++) {
        count = (uint64_t)length[i];
        bad |= count | (end - count);
        gap |= ((uint64_t)first[i] + count) ^ (uint64_t)first[i + 1];
    }
    return !(bad >> 63) && !gap;
}

/* An exception about the first tile that is not where it should be. */
static void
misplaced(const int64_t *first, const int64_t *length, Index tiles, Index cells)
{
    Index i = 0, done = 0;
    for (; i < tiles; i++) {
        int64_t count = READ(int64_t, length + i);
        if (READ(int64_t, first + i) != done || count < 0 || count > cells - done)
            break;
        done += (Index)count;
    }
    PyErr_Format(PyExc_IndexError, "first, length: tile %zd: tiles cover %zd cells of %zd", i, done,
                 cells);
}

static void
paint_labels(int32_t *restrict to, const int32_t *restrict tokens, Index count, int real, int32_t no)
{
    if (!real) {
        set_all(to, count, no);
    } else if (count) {
        to[0] = no;
        memcpy(to + 1, tokens + 1, (size_t)(count - 1) * 4);
    }
}

PyDoc_STRVAR(paint_doc,
    "paint(first, length, segment, segment_ids, position_ids, loss_mask, tokens, labels, ignore)\n"
    "--\n\nFill the arrays that are not None, tile by tile; see tokenloom.batch.paint.");

static PyObject *
paint(PyObject *Py_UNUSED(module), PyObject *const *args, Index nargs)
{
    Py_buffer held[ARRAYS];
    Index ignore, cells, tiles, covered = 0, i = 0;
    PyObject *result = NULL;
    if (wrong_count("paint", nargs, ARRAYS + 1) ||
        get_int(args[ARRAYS], &ignore, INT32_MIN, INT32_MAX, "ignore") ||
        get_arrays(args, held, ARRAY, ARRAYS))
        return NULL;
    if (sizes_of(held, &tiles, &cells))
        goto done;
    if (cells == -1) { /* nothing to paint */
        result = Py_NewRef(Py_None);
        goto done;
    }
    const int64_t *first = held[FIRST].buf, *length = held[LENGTH].buf;
    const int32_t *segment = held[SEGMENT].buf, *tokens = held[TOKENS_IN].buf;
    int32_t *segments = held[SEGMENTS].buf, *positions = held[POSITIONS].buf;
    int32_t *labels = held[LABELS].buf;
    char *mask = held[MASK].buf;
    if (cover(first, length, tiles, cells)) {
        Py_BEGIN_ALLOW_THREADS
        for (; i < tiles; i++) {
            int64_t count = READ(int64_t, length + i); /* another thread may have changed it */
            int32_t here = READ(int32_t, segment + i);
            Index at = covered;
            if (count < 0 || count > cells - at)
                break;
            if (segments)
                set_all(segments + at, (Index)count, here);
            if (positions)
                count_up(positions + at, (Index)count);
            if (mask && count) {
                memset(mask + at, here != 0, (size_t)count);
                mask[at + count - 1] = 0;
            }
            if (labels)
                paint_labels(labels + at, tokens + at, (Index)count, here != 0, (int32_t)ignore);
            covered = at + (Index)count;
        }
        Py_END_ALLOW_THREADS
    }
    if (i == tiles && covered == cells)
        result = Py_NewRef(Py_None);
    else
        misplaced(first, length, tiles, cells);
done:
    release(held, ARRAYS);
    return result;
}

/* -- module ---------------------------------------------------------------------------------- */

static int
module_exec(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&copier_spec);
    int failed = !type || PyModule_AddObjectRef(module, "Copier", type) < 0;
    Py_XDECREF(type);
    return failed ? -1 : add_merger(module);
}

static PyMethodDef module_methods[] = {
    {"paint", (PyCFunction)(void (*)(void))paint, METH_FASTCALL, paint_doc},
    {"best_fit", (PyCFunction)(void (*)(void))best_fit, METH_FASTCALL,
     "best_fit(lengths, capacity, most, out)\n--\n\nSee tokenloom.layout.pack.packers."},
    {"first_fit", (PyCFunction)(void (*)(void))first_fit, METH_FASTCALL,
     "first_fit(lengths, capacity, most, out)\n--\n\nSee tokenloom.layout.pack.packers."},
    {"feistel", (PyCFunction)(void (*)(void))feistel, METH_FASTCALL,
     "feistel(x, which, keys, n, side, backwards, out)\n--\n\nSee tokenloom.random.permute."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, module_exec}, {0, NULL}};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT, "tokenloom._native", "See tokenloom.native.", 0,
    module_methods, module_slots, NULL, NULL, NULL};

PyMODINIT_FUNC
PyInit__native(void)
{
    return PyModuleDef_Init(&module_def);
}
