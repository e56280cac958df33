/* Payload: the file of a column, read in place. Tokens are copied from a read-only map of the file,
 * or with `pread` through a small buffer that stays in the fastest cache.
 *
 * Nothing that was not checked is given away: pages whose crc32c was not compared yet are copied
 * first, compared, and widened from the copy.
 *
 * A map has one danger: if the file is cut short, touching a page that is gone raises SIGBUS, which
 * ends the process. So a copy from a map runs inside a guard (`guarded`): a handler, installed once,
 * looks whether the fault is in a map that this very thread is copying from, and jumps back;
 * everything else goes on to whoever had the signal before. Whoever replaced our handler meanwhile
 * is noticed before a group is read (`guard`), and then `pread` does the work.
 */
#define _GNU_SOURCE
#include "_native.h"
#include "_payload.h"

#include <structmember.h>

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* -- crc32c ---------------------------------------------------------------------------------- */

static uint32_t TABLE[8][256];

static void
fill_tables(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
        TABLE[0][byte] = crc;
    }
    for (int i = 1; i < 8; i++)
        for (int byte = 0; byte < 256; byte++)
            TABLE[i][byte] = TABLE[i - 1][byte] >> 8 ^ TABLE[0][TABLE[i - 1][byte] & 255];
}

static uint32_t
crc_by_table(uint32_t crc, const unsigned char *at, size_t count)
{
    for (; count >= 8; at += 8, count -= 8) {
        crc ^= (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        crc = TABLE[7][crc & 255] ^ TABLE[6][crc >> 8 & 255] ^ TABLE[5][crc >> 16 & 255] ^
              TABLE[4][crc >> 24] ^ TABLE[3][at[4]] ^ TABLE[2][at[5]] ^ TABLE[1][at[6]] ^
              TABLE[0][at[7]];
    }
    while (count--)
        crc = crc >> 8 ^ TABLE[0][(crc ^ *at++) & 255];
    return crc;
}

typedef uint32_t (*Crc)(uint32_t crc, const unsigned char *at, size_t count);

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t
crc_by_hardware(uint32_t crc, const unsigned char *at, size_t count)
{
    uint64_t wide = crc, word;
    for (; count >= 8; at += 8, count -= 8) {
        memcpy(&word, at, 8);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    crc = (uint32_t)wide;
    while (count--)
        crc = __builtin_ia32_crc32qi(crc, *at++);
    return crc;
}

static Crc
best_crc(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2") ? crc_by_hardware : crc_by_table;
}
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
static uint32_t
crc_by_hardware(uint32_t crc, const unsigned char *at, size_t count)
{
    uint64_t word;
    for (; count >= 8; at += 8, count -= 8) {
        memcpy(&word, at, 8);
        crc = __crc32cd(crc, word);
    }
    while (count--)
        crc = __crc32cb(crc, *at++);
    return crc;
}

static Crc
best_crc(void)
{
    return crc_by_hardware;
}
#else
static Crc
best_crc(void)
{
    return crc_by_table;
}
#endif

static Crc crc_of = crc_by_table;

PyObject *
crc32c(PyObject *Py_UNUSED(module), PyObject *const *args, Index nargs)
{
    static const Wanted wanted = {"data", BYTES, 0, 0};
    Py_buffer data;
    Index plain;
    if (wrong_count("crc32c", nargs, 2) || get_int(args[1], &plain, 0, 1, "plain") ||
        get_array(args[0], &data, &wanted))
        return NULL;
    Crc crc = plain ? crc_by_table : crc_of;
    uint32_t found = ~crc(~(uint32_t)0, data.buf, (size_t)data.len);
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(found);
}

/* -- the guard ------------------------------------------------------------------------------- */

static struct sigaction before; /* what was there when ours was installed */
static __thread sigjmp_buf back;
static __thread const Map *volatile watched; /* the maps that this thread copies from */
static __thread volatile Index watched_count;
static __thread const char *volatile fault;

static void
on_bus_error(int number, siginfo_t *info, void *context)
{
    const char *at = info->si_addr;
    for (Index i = 0; i < watched_count; i++)
        if (at >= watched[i].begin && at < watched[i].end) {
            watched_count = 0;
            fault = at;
            siglongjmp(back, 1);
        }
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN) {
        signal(number, SIG_DFL); /* the instruction faults again, and then nobody asks us */
    } else {
        before.sa_handler(number);
    }
}

int
guarded(const Map *maps, Index count, void (*work)(void *), void *given, const char **where)
{
    if (!count) {
        work(given);
        return 0;
    }
    if (sigsetjmp(back, 0)) {
        *where = (const char *)fault;
        return -1;
    }
    watched = maps;
    watched_count = count;
    work(given);
    watched_count = 0;
    return 0;
}

PyObject *
guard(PyObject *Py_UNUSED(module), PyObject *const *Py_UNUSED(args), Index nargs)
{
    static int installed;
    struct sigaction now, ours;
    if (wrong_count("guard", nargs, 0))
        return NULL;
    if (sigaction(SIGBUS, NULL, &now))
        Py_RETURN_FALSE;
    int is_ours = now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_bus_error;
    if (!installed && !is_ours) {
        memset(&ours, 0, sizeof ours);
        ours.sa_sigaction = on_bus_error;
        /* not blocked while it runs: it is left by a jump */
        ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
        sigemptyset(&ours.sa_mask);
        before = now;
        installed = is_ours = !sigaction(SIGBUS, &ours, NULL);
    }
    return PyBool_FromLong(is_ours);
}

/* -- Payload --------------------------------------------------------------------------------- */

static PyObject *
payload_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static const Wanted sums = {"sums", UINT32, 0, 0}, pages = {"checked", BYTES, 1, 0};
    PyObject *sums_of, *checked_of, *name;
    int fd, letter, mapped, keep;
    long long bytes;
    if (kwargs && PyDict_Size(kwargs)) {
        PyErr_SetString(PyExc_TypeError, "Payload takes no named arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "iLCOOppU", &fd, &bytes, &letter, &sums_of, &checked_of, &keep,
                          &mapped, &name))
        return NULL;
    if (letter != 'H' && letter != 'i' && letter != 'I') {
        PyErr_SetString(PyExc_ValueError, "letter: allowed: 'H', 'i', 'I'");
        return NULL;
    }
    Payload *self = (Payload *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self)
        return NULL;
    self->fd = -1;
    self->stored = letter == 'H' ? SHORT : letter == 'i' ? SIGNED : UNSIGNED;
    self->bytes = bytes;
    self->keep = keep;
    self->name = Py_NewRef(name);
    struct stat status;
    if ((self->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)) < 0 || fstat(self->fd, &status)) {
        PyErr_SetFromErrno(PyExc_OSError);
        goto failed;
    }
    if (bytes < 0 || bytes > status.st_size || bytes % bytes_of(self->stored)) {
        PyErr_Format(PyExc_ValueError, "bytes: found %lld, the file has %lld", bytes,
                     (long long)status.st_size);
        goto failed;
    }
    if (sums_of != Py_None) {
        Index wanted = (Index)((bytes + PAGE - 1) / PAGE);
        if (get_array(sums_of, &self->sums, &sums) || get_array(checked_of, &self->checked, &pages))
            goto failed;
        if (self->sums.len / 4 != wanted || self->checked.len != wanted) {
            PyErr_Format(PyExc_ValueError, "sums, checked: found %zd and %zd pages, wanted %zd",
                         self->sums.len / 4, self->checked.len, wanted);
            goto failed;
        }
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

void
prepare_payloads(void)
{
    fill_tables();
    crc_of = best_crc();
}

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

int
copy_stored(char *to, const Payload *from, int64_t offset, Index count, Index wide, Trouble *trouble)
{
    char buffer[4 * PAGE];
    Index item = bytes_of(from->stored);
    int64_t end = offset + count * item;
    if (is_checked(from, offset, end - offset)) {
        if (from->map.begin) {
            copy_tokens(to, from->map.begin + offset, count, from->stored, wide);
            return 0;
        }
        while (offset < end) {
            int64_t size = end - offset < (int64_t)sizeof buffer ? end - offset : (int64_t)sizeof buffer;
            int failed = read_into(from, buffer, offset, (size_t)size);
            if (failed) {
                *trouble = (Trouble){from, offset / PAGE, failed};
                return -1;
            }
            copy_tokens(to, buffer, (Index)size / item, from->stored, wide);
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
            ~crc_of(~(uint32_t)0, (unsigned char *)buffer, (size_t)(last - first)) !=
                READ(uint32_t, sums + page))
            failed = DAMAGED;
        if (failed) {
            *trouble = (Trouble){from, page, failed};
            return -1;
        }
        if (from->keep)
            checked[page] = 1;
        Index here = (Index)((last < end ? last : end) - offset);
        copy_tokens(to, buffer + (offset - first), here / item, from->stored, wide);
        to += here / item * wide;
        offset += here;
    }
    return 0;
}

int
is_at_hand(const Payload *from, int64_t offset)
{
#ifdef RWF_NOWAIT
    char byte;
    struct iovec one = {&byte, 1};
    return preadv2(from->fd, &one, 1, (off_t)offset, RWF_NOWAIT) == 1 || errno != EAGAIN;
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
