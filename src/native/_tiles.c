/* Spans → tiles: the cells of all frames, one after the other, as stretches of one segment.
 *
 * A frame is covered from its first cell on: by its spans, and by filler where there is none. A span
 * that is joined to the one before it lengthens that one's tile. See tokenloom.batch.paint.
 */
#include "_native.h"

enum { BOS = 1, EOS = 2, GOES_ON = 4, JOINED = 8 }; /* as in tokenloom.layout.spans */

enum { FRAME, AT, LENGTH, START, FLAGS, FIRST, CELLS_OUT, SEGMENT, CONTINUES, ARRAYS };

static const Wanted ARRAY[ARRAYS] = {
    {"frame", INT64, 0, 0},  {"at", INT64, 0, 0},     {"length", INT64, 0, 0},
    {"start", INT64, 0, 0},  {"flags", BYTES, 0, 0},  {"first", INT64, 1, 0},
    {"cells", INT64, 1, 0},  {"segment", INT32, 1, 0}, {"continues", BOOL, 1, 0},
};

typedef struct {
    const int64_t *frame, *at, *length, *start;
    const unsigned char *flags;
    int64_t *first, *cells;
    int32_t *segment;
    char *continues;
    Index frames, spans, room, width;
} Work;

/* Write one tile; the caller has looked whether there is room. */
static inline void
put(const Work *work, Index tile, int64_t first, int64_t cells, int32_t segment, int continues)
{
    work->first[tile] = first;
    work->cells[tile] = cells;
    work->segment[tile] = segment;
    work->continues[tile] = (char)continues;
}

/* The number of tiles; -1 - (number of a frame) if its spans are not in order inside it, or there is
 * no room for its tiles. Another thread may change the arrays: every number is read once. */
static Index
tile_all(const Work *work)
{
    Index count = 0, next = 0;
    for (Index row = 0; row < work->frames; row++) {
        int64_t begin = (int64_t)row * work->width, done = 0;
        int64_t last = READ(int64_t, work->frame + row + 1);
        int32_t segment = 0;
        if (last < next || last > work->spans || 2 * (last - next) + 1 > work->room - count)
            return -1 - row;
        for (; next < last; next++) {
            int64_t at = READ(int64_t, work->at + next), cells = READ(int64_t, work->length + next);
            int flags = READ(unsigned char, work->flags + next);
            if (at < done || at > work->width || cells < 0 || cells > work->width - at)
                return -1 - row;
            cells += (flags & BOS) + ((flags & EOS) >> 1);
            if (cells > work->width - at)
                return -1 - row;
            if (flags & JOINED && segment && at == done) {
                work->cells[count - 1] += cells;
            } else {
                if (at > done)
                    put(work, count++, begin + done, at - done, 0, 0);
                put(work, count++, begin + at, cells, ++segment,
                    READ(int64_t, work->start + next) > 0 || flags & GOES_ON);
            }
            done = at + cells;
        }
        if (done < work->width)
            put(work, count++, begin + done, work->width - done, 0, 0);
    }
    return next == work->spans ? count : -1 - work->frames;
}

PyObject *
tile(PyObject *Py_UNUSED(module), PyObject *const *args, Index nargs)
{
    Py_buffer held[ARRAYS];
    Index width, count = -1;
    if (wrong_count("tile", nargs, ARRAYS + 1) ||
        get_int(args[ARRAYS], &width, 1, INT32_MAX, "width") ||
        get_arrays(args, held, ARRAY, ARRAYS))
        return NULL;
    Index spans = held[AT].len / 8, room = held[FIRST].len / 8, frames = held[FRAME].len / 8 - 1;
    int fits = held[LENGTH].len / 8 == spans && held[START].len / 8 == spans &&
               held[FLAGS].len == spans && held[CELLS_OUT].len / 8 == room &&
               held[SEGMENT].len / 4 == room && held[CONTINUES].len == room && frames >= 0;
    if (!fits || (frames && frames > PY_SSIZE_T_MAX / width)) {
        PyErr_SetString(PyExc_ValueError, "frame to continues: not of one length");
    } else {
        Work work = {held[FRAME].buf,  held[AT].buf,        held[LENGTH].buf,  held[START].buf,
                     held[FLAGS].buf,  held[FIRST].buf,     held[CELLS_OUT].buf,
                     held[SEGMENT].buf, held[CONTINUES].buf, frames, spans, room, width};
        Py_BEGIN_ALLOW_THREADS
        count = tile_all(&work);
        Py_END_ALLOW_THREADS
        if (count < 0)
            PyErr_Format(PyExc_IndexError,
                         "frame, at, length: frame %zd has spans out of order, or no room", -1 - count);
    }
    release(held, ARRAYS);
    return count < 0 ? NULL : PyLong_FromSsize_t(count);
}
