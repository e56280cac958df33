/* Copier: runs of tokens in arrays and payloads. Where each lies, and that it lies inside, is checked
 * once for a group of batches; _cells.c then copies any part of them without looking again.
 */
#include "_cells.h"

#include <stdlib.h>

/* How the tokens of a view are stored; `get_array` has checked its format. */
static Stored
stored_in(const Py_buffer *view)
{
    const char *letter = view->format + strlen(view->format) - 1;
    return view->itemsize == 2 ? SHORT : *letter == 'i' || *letter == 'l' ? SIGNED : UNSIGNED;
}

/* The memory that outputs must be apart from: an array, or the sums and marks of a payload. */
enum { KINDS = 2 };

static const Py_buffer *
memory_of(const Held *held, int kind)
{
    if (!held->payload)
        return kind ? NULL : &held->view;
    return kind ? &held->payload->checked : &held->payload->sums;
}

static int
take_views(Copier *self, PyObject *arrays, PyTypeObject *payloads)
{
    static const Wanted view = {"tokens", TOKENS, 0, 0};
    char name[40];
    Index count = PySequence_Size(arrays);
    if (count < 0) {
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            PyErr_SetString(PyExc_TypeError, "views: allowed: a sequence of arrays");
        return -1;
    }
    self->held = PyMem_Calloc((size_t)count + 1, sizeof(Held));
    self->lent = PyMem_Calloc((size_t)count + 1, KINDS * sizeof(Stretch));
    self->maps = PyMem_Calloc((size_t)count + 1, sizeof(Map));
    if (!self->held || !self->lent || !self->maps)
        return PyErr_NoMemory(), -1;
    for (Index i = 0; i < count; i++) {
        PyObject *array = PySequence_GetItem(arrays, i);
        if (!array)
            return -1;
        Held *held = &self->held[i];
        if (Py_TYPE(array) == payloads) {
            held->payload = (Payload *)array; /* and its reference */
            if (held->payload->map.begin)
                self->maps[self->mapped++] = held->payload->map;
            self->count = i + 1;
            continue;
        }
        int failed = get_array(array, &held->view, &view);
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
static void
sort_views(Copier *self)
{
    Index count = 0, last = -1;
    for (Index i = 0; i < self->count; i++)
        for (int kind = 0; kind < KINDS; kind++) {
            const Py_buffer *view = memory_of(&self->held[i], kind);
            uintptr_t begin = view ? (uintptr_t)view->buf : 0;
            if (view && view->len)
                self->lent[count++] = (Stretch){begin, begin + (uintptr_t)view->len};
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
    const Held *views = self->held;
    const Index total = self->total, count = self->count;
    Run *runs = self->runs;
    int64_t end = INT64_MIN;
    int ascend = 1;
    for (Index i = 0; i < total; i++) {
        int64_t which = READ(int64_t, all_which + i), low = READ(int64_t, all_low + i);
        int64_t length = READ(int64_t, all_length + i), cell = READ(int64_t, all_cell + i);
        int inside = which >= 0 && which < count && low >= 0 && length >= 0;
        if (!inside)
            goto outside;
        const Payload *payload = views[which].payload;
        Stored stored = payload ? payload->stored : stored_in(&views[which].view);
        int64_t item = bytes_of(stored);
        int64_t tokens = (payload ? payload->bytes : views[which].view.len) / item;
        if (low > tokens || length > tokens - low)
            goto outside;
        runs[i].payload = payload;
        runs[i].length = length;
        runs[i].cell = cell;
        runs[i].stored = stored;
        if (payload)
            runs[i].offset = low * item;
        else
            runs[i].from = (const char *)views[which].view.buf + low * item;
        ascend &= cell >= end;
        ascend &= !__builtin_add_overflow(cell, length, &end);
        continue;
    outside:
        PyErr_Format(PyExc_IndexError, "which, low, length: run %zd is not inside its view", i);
        goto done;
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
    PyTypeObject **payloads = PyType_GetModuleState(type);
    if (!payloads || take_views(self, arrays, *payloads) || (sort_views(self), take_runs(self, index))) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void
copier_dealloc(Copier *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    while (self->count--) {
        if (self->held[self->count].view.obj)
            PyBuffer_Release(&self->held[self->count].view);
        Py_XDECREF((PyObject *)self->held[self->count].payload);
    }
    PyMem_Free(self->held);
    PyMem_Free(self->maps);
    PyMem_Free(self->lent);
    PyMem_Free(self->runs);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

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

int
get_part(const Copier *self, PyObject *const *args, Part *part)
{
    Index filler;
    if (get_int(args[0], &part->first, PY_SSIZE_T_MIN, PY_SSIZE_T_MAX, "first") ||
        get_int(args[1], &part->last, PY_SSIZE_T_MIN, PY_SSIZE_T_MAX, "last") ||
        get_int(args[2], &part->base, PY_SSIZE_T_MIN, PY_SSIZE_T_MAX, "base") ||
        get_int(args[3], &filler, INT32_MIN, INT32_MAX, "filler"))
        return -1;
    part->filler = (int32_t)filler;
    if (part->first < 0 || part->first > part->last || part->last > self->total) {
        PyErr_Format(PyExc_IndexError, "first, last: runs %zd to %zd of %zd", part->first,
                     part->last, self->total);
        return -1;
    }
    return 0;
}

int
check_apart(const Copier *self, const Py_buffer *out, const char *name)
{
    if (!out->obj || !is_lent(self, out))
        return 0;
    Index i = 0;
    for (; i < self->count - 1; i++) {
        const Py_buffer *one = memory_of(&self->held[i], 0), *other = memory_of(&self->held[i], 1);
        if (share(out, one) || (other && share(out, other)))
            break;
    }
    PyErr_Format(PyExc_ValueError, "%s: it shares memory with views[%zd]", name, i);
    return -1;
}

int
check_room(const Copier *self, const Part *part, Index total)
{
    Index wrong = first_without_room(self, part->first, part->last, part->base, total);
    if (wrong == part->last)
        return 0;
    PyErr_Format(PyExc_IndexError, "out: run %zd overlaps the one before it or lies outside", wrong);
    return -1;
}

PyDoc_STRVAR(announce_doc,
    "announce(sample)\n--\n\n"
    "Tell the system that the runs of all payloads are needed soon, in the order of their places,\n"
    "unless `sample` of them, evenly spaced, can be had at once. Returns how many were announced.");

static int
by_place(const void *one, const void *other)
{
    const Run *a = *(const Run *const *)one, *b = *(const Run *const *)other;
    if (a->payload != b->payload)
        return ((uintptr_t)a->payload > (uintptr_t)b->payload) -
               ((uintptr_t)a->payload < (uintptr_t)b->payload);
    return (a->offset > b->offset) - (a->offset < b->offset);
}

static PyObject *
copier_announce(Copier *self, PyObject *const *args, Index nargs)
{
    Index sample, count = 0, waits = 0;
    if (wrong_count("announce", nargs, 1) || get_int(args[0], &sample, 1, PY_SSIZE_T_MAX, "sample"))
        return NULL;
    const Run **runs = PyMem_Calloc((size_t)self->total + 1, sizeof(Run *));
    if (!runs)
        return PyErr_NoMemory();
    for (Index i = 0; i < self->total; i++)
        if (self->runs[i].payload && self->runs[i].length)
            runs[count++] = &self->runs[i];
    Py_BEGIN_ALLOW_THREADS
    Index step = count / sample + 1;
    for (Index i = 0; i < count && !waits; i += step)
        waits = !is_at_hand(runs[i]->payload, runs[i]->offset);
    if (waits) {
        qsort(runs, (size_t)count, sizeof(Run *), by_place);
        for (Index i = 0; i < count; i++)
            announce(runs[i]->payload, runs[i]->offset, runs[i]->length * bytes_of(runs[i]->stored));
    }
    Py_END_ALLOW_THREADS
    PyMem_Free(runs);
    return PyLong_FromSsize_t(waits ? count : 0);
}

PyDoc_STRVAR(fill_doc,
    "fill(out, first, last, base, filler)\n--\n\n"
    "Copy runs [first, last) to their cells, counted from `base`; all others get `filler`.\n"
    "Returns None, or (a payload, page, how) if its file could not be read.");


PyDoc_STRVAR(weave_doc,
    "weave(first, last, base, filler, tile, tiles, start, ignore, tile_first, tile_length,\n"
    "      tile_segment, segment_ids, position_ids, loss_mask, tokens, labels)\n--\n\n"
    "Fill `tokens` and paint the arrays that are not None in one pass over tiles [tile, tiles),\n"
    "the first of which is at cell `start`. Returns whether some tile of a document has a token to\n"
    "predict; see tokenloom.batch.paint.weave.");

static PyMethodDef copier_methods[] = {
    {"fill", (PyCFunction)(void (*)(void))copier_fill, METH_FASTCALL, fill_doc},
    {"weave", (PyCFunction)(void (*)(void))copier_weave, METH_FASTCALL, weave_doc},
    {"announce", (PyCFunction)(void (*)(void))copier_announce, METH_FASTCALL, announce_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot copier_slots[] = {
    {Py_tp_doc, "Copier(views, which, low, length, cell)\n--\n\nSee tokenloom.batch.cells.Copier."},
    {Py_tp_new, copier_new},
    {Py_tp_dealloc, copier_dealloc},
    {Py_tp_methods, copier_methods},
    {0, NULL},
};

PyType_Spec copier_spec = {
    "tokenloom._native.Copier", sizeof(Copier), 0, Py_TPFLAGS_DEFAULT, copier_slots};
