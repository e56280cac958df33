/* Payload: the file of a column, read in place. Tokens are copied from a read-only map of the file,
 * or with `pread` through a small buffer that stays in the fastest cache.
 *
 * Nothing that was not checked is given away: pages whose crc32c was not compared yet are copied
 * first, compared, and widened from the copy. Pages of a map may be gone: see _guard.c.
 */
#include "_payload.h"

#include <structmember.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* How tokens of a letter are stored; -1 with an exception for other letters. */
static int
stored_as(PyObject *letter)
{
    Py_UCS4 found = 0;
    if (PyUnicode_Check(letter) && PyUnicode_GetLength(letter) == 1)
        found = PyUnicode_ReadChar(letter, 0);
    if (found == 'H' || found == 'i' || found == 'I')
        return found == 'H' ? SHORT : found == 'i' ? SIGNED : UNSIGNED;
    PyErr_Format(PyExc_ValueError, "letter: found %R, allowed: 'H', 'i', 'I'", letter);
    return -1;
}

static PyObject *
payload_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static const Wanted wanted[] = {{"sums", UINT32, 0, 1}, {"checked", BYTES, 1, 1}};
    PyObject *fd_of, *bytes_given, *letter, *pages[2], *kept, *maps, *name;
    Py_buffer held[2];
    Index fd, bytes;
    int stored, keep, mapped;
    if (kwargs && PyDict_Size(kwargs)) {
        PyErr_SetString(PyExc_TypeError, "Payload takes no named arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "OOOOOOOO", &fd_of, &bytes_given, &letter, &pages[0], &pages[1],
                          &kept, &maps, &name) ||
        get_int(fd_of, &fd, 0, INT_MAX, "fd") ||
        get_int(bytes_given, &bytes, 0, PY_SSIZE_T_MAX, "bytes") ||
        (stored = stored_as(letter)) < 0 || (keep = PyObject_IsTrue(kept)) < 0 ||
        (mapped = PyObject_IsTrue(maps)) < 0)
        return NULL;
    if (!PyUnicode_Check(name)) {
        PyErr_SetString(PyExc_TypeError, "name: allowed: a text");
        return NULL;
    }
    Payload *self = (Payload *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self)
        return NULL;
    self->fd = -1;
    self->stored = (Stored)stored;
    self->bytes = bytes;
    self->keep = keep;
    self->name = Py_NewRef(name);
    struct stat status;
    if ((self->fd = fcntl((int)fd, F_DUPFD_CLOEXEC, 3)) < 0 || fstat(self->fd, &status)) {
        PyErr_SetFromErrno(PyExc_OSError);
        goto failed;
    }
    if (bytes > status.st_size || bytes % bytes_of(self->stored)) {
        PyErr_Format(PyExc_ValueError, "bytes: found %zd, the file has %lld", bytes,
                     (long long)status.st_size);
        goto failed;
    }
    if (get_arrays(pages, held, wanted, 2))
        goto failed;
    self->sums = held[0];
    self->checked = held[1];
    Index count = bytes / PAGE + (bytes % PAGE != 0);
    if (!self->sums.obj != !self->checked.obj ||
        (self->sums.obj && (self->sums.len / 4 != count || self->checked.len != count))) {
        PyErr_Format(PyExc_ValueError, "sums, checked: found %zd and %zd pages, wanted %zd",
                     self->sums.len / 4, self->checked.len, count);
        goto failed;
    }
    if (mapped && bytes) {
        void *map = mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, self->fd, 0);
        if (map == MAP_FAILED) {
            PyErr_SetFromErrno(PyExc_OSError);
            goto failed;
        }
        self->map = (Map){map, (const char *)map + bytes};
        madvise(map, (size_t)bytes, MADV_RANDOM); /* rows lie anywhere: what is around them waits */
    }
    return (PyObject *)self;
failed:
    Py_DECREF(self);
    return NULL;
}

static void
payload_dealloc(Payload *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    if (self->map.begin)
        munmap((void *)self->map.begin, (size_t)self->bytes);
    if (self->fd >= 0)
        close(self->fd);
    if (self->sums.obj)
        PyBuffer_Release(&self->sums);
    if (self->checked.obj)
        PyBuffer_Release(&self->checked);
    Py_XDECREF(self->name);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMemberDef payload_members[] = {
    {"name", T_OBJECT, offsetof(Payload, name), READONLY, "where the file is, for messages"},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot payload_slots[] = {
    {Py_tp_doc, "Payload(fd, bytes, letter, sums, checked, keep, mapped, name)\n--\n\n"
                "See tokenloom.store.payload."},
    {Py_tp_new, payload_new},
    {Py_tp_dealloc, payload_dealloc},
    {Py_tp_members, payload_members},
    {0, NULL},
};

PyType_Spec payload_spec = {
    "tokenloom._native.Payload", sizeof(Payload), 0, Py_TPFLAGS_DEFAULT, payload_slots};

/* Bytes [offset, offset + count) of a file into memory; 0, or an error number, -1 for too few. */
static int
read_into(const Payload *from, char *to, int64_t offset, size_t count)
{
    if (from->map.begin) {
        memcpy(to, from->map.begin + offset, count);
        return 0;
    }
    while (count) {
        ssize_t got = pread(from->fd, to, count, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got ? errno : -1;
        to += got;
        offset += got;
        count -= (size_t)got;
    }
    return 0;
}

/* Whether all pages of some bytes were checked. */
static inline int
is_checked(const Payload *from, int64_t offset, int64_t bytes)
{
    const unsigned char *checked = from->checked.buf;
    if (!checked)
        return 1;
    for (int64_t page = offset / PAGE; page * PAGE < offset + bytes; page++)
        if (!READ(unsigned char, checked + page))
            return 0;
    return 1;
}

const char *
in_map(const Payload *from, int64_t offset, int64_t bytes)
{
    return from->map.begin && is_checked(from, offset, bytes) ? from->map.begin + offset : NULL;
}

int
copy_stored(char *to, const Payload *from, int64_t offset, Index count, Index wide, Ahead *ahead,
            Trouble *trouble)
{
    char buffer[4 * PAGE];
    Index item = bytes_of(from->stored);
    int64_t end = offset + count * item;
    if (!from->map.begin && is_checked(from, offset, end - offset)) {
        while (offset < end) {
            int64_t size = end - offset < (int64_t)sizeof buffer ? end - offset : (int64_t)sizeof buffer;
            int failed = read_into(from, buffer, offset, (size_t)size);
            if (failed) {
                *trouble = (Trouble){from, offset / PAGE, failed, 0};
                return -1;
            }
            copy_tokens(to, buffer, (Index)size / item, from->stored, wide, ahead);
            to += size / item * wide;
            offset += size;
        }
        return 0;
    }
    const uint32_t *sums = from->sums.buf;
    unsigned char *checked = from->checked.buf;
    for (int64_t page = offset / PAGE; offset < end; page++) {
        int64_t first = page * PAGE, last = first + PAGE < from->bytes ? first + PAGE : from->bytes;
        int failed = read_into(from, buffer, first, (size_t)(last - first));
        if (!failed && !READ(unsigned char, checked + page) &&
            page_crc(buffer, (size_t)(last - first)) != READ(uint32_t, sums + page))
            failed = DAMAGED;
        if (failed) {
            *trouble = (Trouble){from, page, failed, 0};
            return -1;
        }
        if (from->keep)
            *(volatile unsigned char *)(checked + page) = 1;
        Index here = (Index)((last < end ? last : end) - offset);
        copy_tokens(to, buffer + (offset - first), here / item, from->stored, wide, ahead);
        to += here / item * wide;
        offset += here;
    }
    return 0;
}

int
is_cut(const Payload *from, int64_t *page)
{
    struct stat status;
    if (!from->map.begin || fstat(from->fd, &status) || status.st_size >= from->bytes)
        return 0;
    *page = status.st_size / PAGE;
    return 1;
}

int
is_at_hand(const Payload *from, int64_t offset)
{
#ifdef RWF_NOWAIT
    char byte;
    struct iovec one = {&byte, 1};
    return preadv2(from->fd, &one, 1, (off_t)offset, RWF_NOWAIT) >= 0 || errno != EAGAIN;
#else
    (void)from, (void)offset;
    return 1;
#endif
}

void
announce(const Payload *from, int64_t offset, int64_t bytes)
{
#ifdef POSIX_FADV_WILLNEED
    posix_fadvise(from->fd, (off_t)offset, (off_t)bytes, POSIX_FADV_WILLNEED);
#else
    (void)from, (void)offset, (void)bytes;
#endif
}
