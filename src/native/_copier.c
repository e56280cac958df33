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
            held->stored = held->payload->stored;
            held->tokens = held->payload->bytes / bytes_of(held->stored);
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
        held->stored = stored_in(&held->view);
        held->tokens = held->view.len / bytes_of(held->stored);
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

/* Memory for runs, which `put_run` then fills; -1 with an exception. */
static int
take_room(Copier *self, Index total)
{
    self->total = 0;
    self->ascend = 1;
    self->end = INT64_MIN;
    if ((size_t)total > SIZE_MAX / sizeof(Run) - 1 ||
        !(self->runs = PyMem_Malloc(((size_t)total + 1) * sizeof(Run))))
        return PyErr_NoMemory(), -1;
    return 0;
}

/* Add a run; -1, without an exception, if it is not inside its view. */
static inline int
put_run(Copier *self, int64_t which, int64_t low, int64_t length, int64_t cell)
{
    Run *run = &self->runs[self->total];
    if (which < 0 || which >= self->count || low < 0 || length < 0)
        return -1;
    const Held *held = &self->held[which];
    int64_t item = bytes_of(held->stored);
    if (low > held->tokens || length > held->tokens - low)
        return -1;
    run->payload = held->payload;
    run->length = length;
    run->cell = cell;
    run->stored = held->stored;
    run->padded = (held->tokens - low - length) * item >= LINE;
    if (held->payload)
        run->offset = low * item;
    else
        run->from = (const char *)held->view.buf + low * item;
    self->ascend &= cell >= self->end;
    self->ascend &= !__builtin_add_overflow(cell, length, &self->end);
    self->total++;
    return 0;
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
    const int64_t *which = held[0].buf, *low = held[1].buf, *length = held[2].buf, *cell = held[3].buf;
    Index total = held[0].len / 8;
    if (take_room(self, total))
        goto done;
    failed = 0;
    for (Index i = 0; i < total && !failed; i++)
        failed = put_run(self, READ(int64_t, which + i), READ(int64_t, low + i),
                         READ(int64_t, length + i), READ(int64_t, cell + i));
    if (failed)
        PyErr_Format(PyExc_IndexError, "which, low, length: run %zd is not inside its view",
                     self->total);
done:
    release(held, 4);
    return failed;
}

/* The same by rows: row r has runs [edges[r], edges[r + 1]), all of them in view which[r], whose first
 * token has address first[which[r]]. */
static int
take_rows(Copier *self, PyObject *const *arrays, Index width)
{
    enum { WHICH, FIRST, EDGES, ADDRESS, LENGTH, AT, ALL };
    static const Wanted wanted[] = {{"which", INT64, 0, 0},   {"first", INT64, 0, 0},
                                    {"edges", INT64, 0, 0},   {"address", INT64, 0, 0},
                                    {"length", INT64, 0, 0}, {"at", INT64, 0, 0}};
    Py_buffer held[ALL];
    int failed = -1;
    if (get_arrays(arrays, held, wanted, ALL))
        return -1;
    const int64_t *which = held[WHICH].buf, *first = held[FIRST].buf, *edges = held[EDGES].buf;
    const int64_t *address = held[ADDRESS].buf, *length = held[LENGTH].buf, *at = held[AT].buf;
    Index rows = held[WHICH].len / 8, total = held[ADDRESS].len / 8;
    int64_t all, low, cell = 0;
    if (held[LENGTH].len != held[ADDRESS].len || held[AT].len != held[ADDRESS].len) {
        PyErr_SetString(PyExc_ValueError, "address, length and at: not of one length");
        goto done;
    }
    if (held[FIRST].len / 8 != self->count || held[EDGES].len / 8 != rows + 1) {
        PyErr_SetString(PyExc_ValueError,
                        "first and edges: allowed: one for each view, and one more than rows");
        goto done;
    }
    if (READ(int64_t, edges) || __builtin_mul_overflow((int64_t)rows, (int64_t)width, &all)) {
        PyErr_SetString(PyExc_ValueError, "edges, width: they do not start at 0, or are too large");
        goto done;
    }
    if (take_room(self, total))
        goto done;
    for (Index row = 0; row < rows; row++) {
        int64_t view = READ(int64_t, which + row), stop = READ(int64_t, edges + row + 1);
        if (view < 0 || view >= self->count || stop < self->total || stop > total) {
            PyErr_Format(PyExc_IndexError, "which, edges: row %zd has no such view or runs", row);
            goto done;
        }
        int64_t begin = READ(int64_t, first + view), base = (int64_t)row * width;
        while (self->total < stop) {
            Index i = self->total;
            if (__builtin_sub_overflow(READ(int64_t, address + i), begin, &low) ||
                __builtin_add_overflow(READ(int64_t, at + i), base, &cell))
                low = -1;
            if (put_run(self, view, low, READ(int64_t, length + i), cell)) {
                PyErr_Format(PyExc_IndexError,
                             "first, address, length, at: run %zd is not inside its view", i);
                goto done;
            }
        }
    }
    if (self->total != total) {
        PyErr_SetString(PyExc_ValueError, "edges: they end before the runs");
        goto done;
    }
    failed = 0;
done:
    release(held, ALL);
    return failed;
}

/* A copier of views, without runs. */
static Copier *
copier_of(PyTypeObject *type, PyObject *arrays)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Copier *self = (Copier *)alloc(type, 0);
    PyTypeObject **payloads = self ? PyType_GetModuleState(type) : NULL;
    if (!payloads || take_views(self, arrays, *payloads)) {
        Py_XDECREF((PyObject *)self);
        return NULL;
    }
    sort_views(self);
    return self;
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
    Copier *self = copier_of(type, arrays);
    if (self && take_runs(self, index)) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

PyDoc_STRVAR(rows_doc,
    "of_rows(views, which, first, edges, address, length, at, width)\n--\n\n"
    "A copier of rows of `width` cells: the runs of each row are in one view, by the address of\n"
    "their tokens; see tokenloom.batch.cells.row_copier.");

static PyObject *
copier_of_rows(PyObject *type, PyObject *const *args, Index nargs)
{
    Index width;
    if (wrong_count("of_rows", nargs, 8) || get_int(args[7], &width, 0, INT32_MAX, "width"))
        return NULL;
    Copier *self = copier_of((PyTypeObject *)type, args[0]);
    if (self && take_rows(self, args + 1, width)) {
        Py_DECREF((PyObject *)self);
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
    {"of_rows", (PyCFunction)(void (*)(void))copier_of_rows, METH_FASTCALL | METH_CLASS, rows_doc},
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
