/* What Python passes → checked buffers and integers, or an exception that names the argument. */
#include "_native.h"

static const struct {
    const char *name;
    const char *letters; /* of the buffer protocol */
    Index item, other; /* bytes of an item, 0 for any; the second size allowed, if there is one */
    int anywhere;      /* whether it may lie at any address */
} TYPE[] = {
    {"int32", "il", 4, 0, 0},
    {"int64", "lq", 8, 0, 0},
    {"uint64", "LQ", 8, 0, 0},
    {"int64 or uint64", "lqLQ", 8, 0, 0},
    {"bool", "?", 1, 0, 0},
    {"uint16, uint32 or int32", "HILil", 2, 4, 1},
    {"int32 or int64", "ilq", 4, 8, 0},
    {"uint32", "IL", 4, 0, 0},
    {"bytes", "Bbc?", 1, 0, 0},
    {"float64", "d", 8, 0, 0},
    {"uint8, uint16, uint32 or uint64", "BHILQ", 0, 0, 1},
};

/* The letter of a format in native byte order; 0 if it has another order, or is a record. */
static char
letter(const char *format)
{
    const uint16_t one = 1;
    if (!format)
        return 'B';
    if (*format == '@' || *format == '=' || *format == (*(const char *)&one ? '<' : '>'))
        format++;
    return format[0] && !format[1] ? *format : 0;
}

void
name_it(const char *name)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    int kind = PyErr_GivenExceptionMatches(type, PyExc_TypeError) ? 1
             : PyErr_GivenExceptionMatches(type, PyExc_ValueError) ||
               PyErr_GivenExceptionMatches(type, PyExc_BufferError) ? 2 : 0;
    if (!kind) { /* not about the argument: no memory, an interrupt */
        PyErr_Restore(type, value, trace);
        return;
    }
    PyErr_Format(kind == 1 ? PyExc_TypeError : PyExc_ValueError, "%s: %S", name,
                 value ? value : Py_None);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
}

static int
fits(const Py_buffer *view, const Wanted *wanted)
{
    Index item = view->itemsize;
    char found = letter(view->format);
    if (!found || !strchr(TYPE[wanted->type].letters, found) ||
        (TYPE[wanted->type].item && item != TYPE[wanted->type].item &&
         item != TYPE[wanted->type].other)) {
        PyErr_Format(PyExc_TypeError, "%s: found items %s of %zd bytes, allowed: %s", wanted->name,
                     view->format ? view->format : "B", item, TYPE[wanted->type].name);
        return -1;
    }
    if (!TYPE[wanted->type].anywhere && view->len && (uintptr_t)view->buf % (uintptr_t)item) {
        PyErr_Format(PyExc_ValueError, "%s: it does not start at a multiple of %zd bytes",
                     wanted->name, item);
        return -1;
    }
    return 0;
}

int
get_array(PyObject *array, Py_buffer *view, const Wanted *wanted)
{
    /* without strides it is contiguous, in C order, or refused */
    int flags = PyBUF_ND | PyBUF_FORMAT | (wanted->written ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(array, view, flags) < 0) {
        name_it(wanted->name);
        return -1;
    }
    if (!fits(view, wanted))
        return 0;
    PyBuffer_Release(view);
    return -1;
}

int
share(const Py_buffer *one, const Py_buffer *other)
{
    uintptr_t a = (uintptr_t)one->buf, b = (uintptr_t)other->buf;
    if (one->len <= 0 || other->len <= 0)
        return 0;
    return a < b ? b - a < (uintptr_t)one->len : a - b < (uintptr_t)other->len;
}

void
release(Py_buffer *views, int count)
{
    while (count--)
        if (views[count].obj)
            PyBuffer_Release(&views[count]);
}

int
get_arrays(PyObject *const *arrays, Py_buffer *views, const Wanted *wanted, int count)
{
    for (int got = 0; got < count; got++) {
        views[got].buf = NULL;
        views[got].obj = NULL;
        views[got].len = 0;
        if (wanted[got].optional && arrays[got] == Py_None)
            continue;
        if (get_array(arrays[got], &views[got], &wanted[got])) {
            release(views, got);
            return -1;
        }
    }
    for (int out = 0; out < count; out++)
        for (int other = 0; wanted[out].written && views[out].len && other < count; other++)
            if (other != out && (other < out || !wanted[other].written) &&
                share(&views[out], &views[other])) {
                PyErr_Format(PyExc_ValueError, "%s: it shares memory with %s", wanted[out].name,
                             wanted[other].name);
                release(views, count);
                return -1;
            }
    return 0;
}

int
get_int(PyObject *value, Index *out, Index least, Index most, const char *name)
{
    *out = PyLong_AsSsize_t(value);
    if (*out == -1 && PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_OverflowError)) {
            name_it(name);
            return -1;
        }
        PyErr_Clear();
    } else if (*out >= least && *out <= most) {
        return 0;
    }
    PyErr_Format(PyExc_ValueError, "%s: found %R, allowed: %zd to %zd", name, value, least, most);
    return -1;
}

int
wrong_count(const char *what, Index found, Index wanted)
{
    if (found == wanted)
        return 0;
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, %zd were given", what, wanted, found);
    return -1;
}
