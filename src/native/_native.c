/* The compiled loops over cells: copy runs of tokens into cells, and paint tiles into arrays. The
 * packers are in _packers.c, orders in _order.c.
 *
 * Optional: `tokenloom.native` says whether this module is available; without it NumPy code gives
 * the same bytes. It uses only Python's limited API and no NumPy headers, so arrays come as
 * buffers. No input is trusted: every range is checked against its buffer before a byte moves.
 */
#include "_native.h"

/* -- buffers -------------------------------------------------------------------------------- */

int
get_items(PyObject *array, Py_buffer *view, Index item, int flags, const char *name)
{
    if (PyObject_GetBuffer(array, view, flags) < 0)
        return -1;
    if (view->itemsize == item)
        return 0;
    PyErr_Format(PyExc_TypeError, "%s: items of %zd bytes, wanted %zd", name, view->itemsize, item);
    PyBuffer_Release(view);
    return -1;
}

int
get_int(PyObject *value, Index *out)
{
    *out = PyLong_AsSsize_t(value);
    return *out == -1 && PyErr_Occurred() ? -1 : 0;
}

int
wrong_count(const char *what, Index found, Index wanted)
{
    if (found == wanted)
        return 0;
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, %zd were given", what, wanted, found);
    return -1;
}

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

typedef struct {
    PyObject_HEAD
    Py_buffer *views;
    Index count; /* buffers held */
    Run *runs;
    Index total; /* runs */
} Copier;

static int
take_views(Copier *self, PyObject *arrays)
{
    Index count = PySequence_Size(arrays);
    if (count < 0 || !(self->views = PyMem_Calloc((size_t)count + 1, sizeof(Py_buffer))))
        return count < 0 ? -1 : (PyErr_NoMemory(), -1);
    for (Index i = 0; i < count; i++) {
        PyObject *array = PySequence_GetItem(arrays, i);
        if (!array)
            return -1;
        int failed = PyObject_GetBuffer(array, &self->views[i], PyBUF_SIMPLE);
        Py_DECREF(array);
        if (failed < 0)
            return -1;
        self->count = i + 1;
        Index item = self->views[i].itemsize;
        if (item != 2 && item != 4) {
            PyErr_Format(PyExc_TypeError, "view %zd: tokens of %zd bytes", i, item);
            return -1;
        }
    }
    return 0;
}

static int
take_runs(Copier *self, PyObject *const *arrays)
{
    static const char *names[] = {"which", "low", "length", "cell"};
    Py_buffer held[4];
    int got = 0, failed = -1;
    for (; got < 4; got++)
        if (get_items(arrays[got], &held[got], 8, PyBUF_SIMPLE, names[got]) < 0)
            goto done;
    if (held[1].len != held[0].len || held[2].len != held[0].len || held[3].len != held[0].len) {
        PyErr_SetString(PyExc_ValueError, "which, low, length and cell: not of one length");
        goto done;
    }
    self->total = held[0].len / 8;
    if (!(self->runs = PyMem_Calloc((size_t)self->total + 1, sizeof(Run)))) {
        PyErr_NoMemory();
        goto done;
    }
    const int64_t *which = held[0].buf, *low = held[1].buf, *length = held[2].buf;
    const int64_t *cell = held[3].buf;
    for (Index i = 0; i < self->total; i++) {
        int inside = which[i] >= 0 && which[i] < self->count && low[i] >= 0 && length[i] >= 0;
        Index item = inside ? self->views[which[i]].itemsize : 2;
        if (inside) {
            int64_t tokens = self->views[which[i]].len / item;
            inside = low[i] <= tokens && length[i] <= tokens - low[i];
        }
        if (!inside) {
            PyErr_Format(PyExc_IndexError, "run %zd: not inside its view", i);
            goto done;
        }
        self->runs[i].from = (const char *)self->views[which[i]].buf + low[i] * item;
        self->runs[i].item = item;
        self->runs[i].length = length[i];
        self->runs[i].cell = cell[i];
    }
    failed = 0;
done:
    while (got--)
        PyBuffer_Release(&held[got]);
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
    if (take_views(self, arrays) < 0 || take_runs(self, index) < 0) {
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
    PyMem_Free(self->runs);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

PyDoc_STRVAR(fill_doc,
    "fill(out, first, last, base, filler)\n--\n\n"
    "Copy runs [first, last) to their cells, counted from `base`; all others get `filler`.");

static PyObject *
copier_fill(Copier *self, PyObject *const *args, Index nargs)
{
    Index first, last, base, filler, done = 0;
    Py_buffer out;
    if (wrong_count("fill", nargs, 5) || get_int(args[1], &first) || get_int(args[2], &last) ||
        get_int(args[3], &base) || get_int(args[4], &filler))
        return NULL;
    if (first < 0 || first > last || last > self->total) {
        PyErr_Format(PyExc_IndexError, "runs %zd to %zd of %zd", first, last, self->total);
        return NULL;
    }
    if (get_items(args[0], &out, 4, PyBUF_WRITABLE, "out") < 0)
        return NULL;
    int32_t *cells = out.buf;
    Index total = out.len / 4, i;
    Py_BEGIN_ALLOW_THREADS
    for (i = first; i < last; i++) {
        const Run *run = &self->runs[i];
        int64_t at = run->cell - base;
        if (at < done || at > total || run->length > total - at)
            break;
        set_all(cells + done, at - done, (int32_t)filler);
        copy_wide(cells + at, run->from, run->length, run->item);
        done = at + run->length;
    }
    if (i == last)
        set_all(cells + done, total - done, (int32_t)filler);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&out);
    if (i < last) {
        PyErr_Format(PyExc_IndexError,
                     "run %zd overlaps the one before it or lies outside the output", i);
        return NULL;
    }
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

enum { FIRST, LENGTH, SEGMENT, SEGMENTS, POSITIONS, MASK, TOKENS, LABELS, ARRAYS };

static const struct {
    const char *name;
    Index item;
    int flags;
} ARRAY[ARRAYS] = {
    {"first", 8, PyBUF_SIMPLE},         {"length", 8, PyBUF_SIMPLE},
    {"segment", 4, PyBUF_SIMPLE},       {"segment_ids", 4, PyBUF_WRITABLE},
    {"position_ids", 4, PyBUF_WRITABLE}, {"loss_mask", 1, PyBUF_WRITABLE},
    {"tokens", 4, PyBUF_SIMPLE},        {"labels", 4, PyBUF_WRITABLE},
};

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
    Index ignore, cells = -1, i = 0, tiles = 0, done = 0;
    PyObject *result = NULL;
    int got = 0;
    if (wrong_count("paint", nargs, ARRAYS + 1) || get_int(args[ARRAYS], &ignore))
        return NULL;
    for (; got < ARRAYS; got++) {
        held[got].buf = NULL;
        held[got].obj = NULL;
        if (args[got] == Py_None && got > SEGMENT)
            continue;
        if (get_items(args[got], &held[got], ARRAY[got].item, ARRAY[got].flags, ARRAY[got].name))
            goto release;
        Index items = held[got].len / ARRAY[got].item;
        Index *wanted = got <= SEGMENT ? &tiles : &cells;
        if (got == FIRST)
            tiles = items;
        else if (cells == -1 && got > SEGMENT)
            cells = items;
        if (items != *wanted) {
            PyErr_Format(PyExc_ValueError, "%s: %zd items, wanted %zd", ARRAY[got].name, items,
                         *wanted);
            got++;
            goto release;
        }
    }
    if (!held[TOKENS].buf != !held[LABELS].buf && cells > 0) {
        PyErr_SetString(PyExc_ValueError, "tokens and labels: one without the other");
        goto release;
    }
    const int64_t *first = held[FIRST].buf, *length = held[LENGTH].buf;
    const int32_t *segment = held[SEGMENT].buf, *tokens = held[TOKENS].buf;
    int32_t *segments = held[SEGMENTS].buf, *positions = held[POSITIONS].buf;
    int32_t *labels = held[LABELS].buf;
    char *mask = held[MASK].buf;
    Py_BEGIN_ALLOW_THREADS
    for (; i < tiles; i++) {
        Index at = (Index)first[i], count = (Index)length[i];
        if (at != done || count < 0 || count > cells - at)
            break;
        if (segments)
            set_all(segments + at, count, segment[i]);
        if (positions)
            count_up(positions + at, count);
        if (mask && count) {
            memset(mask + at, segment[i] != 0, (size_t)count);
            mask[at + count - 1] = 0;
        }
        if (labels)
            paint_labels(labels + at, tokens + at, count, segment[i] != 0, (int32_t)ignore);
        done = at + count;
    }
    Py_END_ALLOW_THREADS
    if (cells == -1 || (i == tiles && done == cells))
        result = Py_NewRef(Py_None);
    else
        PyErr_Format(PyExc_IndexError, "tile %zd: tiles cover %zd cells of %zd", i, done, cells);
release:
    while (got--)
        if (held[got].obj)
            PyBuffer_Release(&held[got]);
    return result;
}

/* -- module ---------------------------------------------------------------------------------- */

static int
module_exec(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&copier_spec);
    int failed = !type || PyModule_AddObjectRef(module, "Copier", type) < 0;
    Py_XDECREF(type);
    return failed ? -1 : 0;
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
