/* Arrays of a batch compared with what tiles and tokens make of them: `paint`, the other way round.
 *
 * Nothing is written, and nothing is told but the first tile that differs: whoever wants to know more
 * looks again with NumPy (tokenloom.inspect.audit.cell_laws). One pass over the cells, tile by tile.
 */
#include "_native.h"

enum { FIRST, LENGTH, SEGMENT, SEGMENTS, POSITIONS, MASK, TOKENS_IN, LABELS, WANTED_CELLS, ARRAYS };

static const Wanted ARRAY[ARRAYS] = {
    {"first", INT64, 0, 0},       {"length", INT64, 0, 0},       {"segment", INT32, 0, 0},
    {"segment_ids", INT32, 0, 0}, {"position_ids", INT32, 0, 0}, {"loss_mask", BOOL, 0, 0},
    {"tokens", CELLS, 0, 0},      {"labels", CELLS, 0, 0},       {"cells", CELLS, 0, 0},
};

/* What is compared; `tokens`, `labels` and `cells` have cells of `wide` bytes. */
typedef struct {
    const int64_t *first, *length;
    const int32_t *segment, *segments, *positions;
    const char *mask, *tokens, *labels, *cells;
    Index tiles, total, wide;
    int32_t ignore;
} Given;

/* Bits that differ between integer arrays and what a tile makes of them, from its cell `from` on. In a
 * document a label is its token; in filler, and in a document's first cell, it is `ignore`. The
 * pointers are parameters because compilers believe `restrict` most readily there. */
#define DIFFER(name, To, Bits)                                                                     \
    static Bits name##_document(const To *restrict tokens, const To *restrict labels,              \
                                const To *restrict cells, const int32_t *restrict segments,        \
                                const int32_t *restrict positions, Index from, Index count,        \
                                int32_t segment)                                                   \
    {                                                                                              \
        Bits bad = 0;                                                                              \
        for (Index k = from; k < count; k++)                                                       \
            bad |= (Bits)(tokens[k] ^ cells[k]) | (Bits)(labels[k] ^ cells[k]) |                   \
                   (Bits)(uint32_t)(segments[k] ^ segment) |                                       \
                   (Bits)(uint32_t)(positions[k] ^ (int32_t)k);                                    \
        return bad;                                                                                \
    }                                                                                              \
    static Bits name##_ignored(const To *restrict tokens, const To *restrict labels,               \
                               const To *restrict cells, const int32_t *restrict segments,         \
                               const int32_t *restrict positions, Index count, int32_t segment,    \
                               To ignore)                                                          \
    {                                                                                              \
        Bits bad = 0;                                                                              \
        for (Index k = 0; k < count; k++)                                                          \
            bad |= (Bits)(tokens[k] ^ cells[k]) | (Bits)(labels[k] ^ ignore) |                     \
                   (Bits)(uint32_t)(segments[k] ^ segment) |                                       \
                   (Bits)(uint32_t)(positions[k] ^ (int32_t)k);                                    \
        return bad;                                                                                \
    }                                                                                              \
    static int name(const Given *given, Index at, Index count, int32_t segment)                    \
    {                                                                                              \
        const To *tokens = (const To *)given->tokens + at, *labels = (const To *)given->labels + at; \
        const To *cells = (const To *)given->cells + at;                                           \
        const int32_t *segments = given->segments + at, *positions = given->positions + at;        \
        Index ignored = segment ? 1 : count;                                                       \
        Bits bad = name##_ignored(tokens, labels, cells, segments, positions, ignored, segment,    \
                                  (To)given->ignore);                                              \
        bad |= name##_document(tokens, labels, cells, segments, positions, ignored, count, segment); \
        return bad != 0;                                                                           \
    }

DIFFER(differ_32, int32_t, uint32_t)
DIFFER(differ_64, int64_t, uint64_t)

/* Whether a mask is not what a tile makes of it: true in a document but for its last cell. */
static int
masked(const char *restrict mask, Index count, int32_t segment)
{
    char right = segment != 0, bad = mask[count - 1];
    for (Index k = 0; k < count - 1; k++)
        bad |= mask[k] ^ right;
    return bad != 0;
}

/* The first tile that differs, `tiles` for none, or -1 if tiles do not cover the cells. Another thread
 * may change a tile, so its length is read once and checked here. */
static Index
first_that_differs(const Given *given)
{
    Index at = 0, found = given->tiles;
    for (Index i = 0; i < given->tiles; i++) {
        int64_t count = READ(int64_t, given->length + i), first = READ(int64_t, given->first + i);
        int32_t segment = READ(int32_t, given->segment + i);
        if (first != at || count < 0 || count > given->total - at)
            return -1;
        if (count && found == given->tiles) {
            int (*differ)(const Given *, Index, Index, int32_t) =
                given->wide == 4 ? differ_32 : differ_64;
            if (differ(given, at, (Index)count, segment) ||
                masked(given->mask + at, (Index)count, segment))
                found = i;
        }
        at += (Index)count;
    }
    return at == given->total ? found : -1;
}

PyObject *
same(PyObject *Py_UNUSED(module), PyObject *const *args, Index nargs)
{
    Py_buffer held[ARRAYS];
    Index ignore, found = -1;
    if (wrong_count("same", nargs, ARRAYS + 1) ||
        get_int(args[ARRAYS], &ignore, INT32_MIN, INT32_MAX, "ignore") ||
        get_arrays(args, held, ARRAY, ARRAYS))
        return NULL;
    Index tiles = held[FIRST].len / 8, total = held[SEGMENTS].len / 4, wide = held[TOKENS_IN].itemsize;
    int fits = held[LENGTH].len / 8 == tiles && held[SEGMENT].len / 4 == tiles &&
               held[POSITIONS].len / 4 == total && held[MASK].len == total;
    for (int i = TOKENS_IN; i < ARRAYS; i++)
        fits = fits && held[i].itemsize == wide && held[i].len / wide == total;
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "first to cells: not of one length, or not of one type");
    } else {
        Given given = {held[FIRST].buf,  held[LENGTH].buf, held[SEGMENT].buf,   held[SEGMENTS].buf,
                       held[POSITIONS].buf, held[MASK].buf,   held[TOKENS_IN].buf, held[LABELS].buf,
                       held[WANTED_CELLS].buf, tiles, total, wide, (int32_t)ignore};
        Py_BEGIN_ALLOW_THREADS
        found = first_that_differs(&given);
        Py_END_ALLOW_THREADS
        if (found < 0)
            PyErr_SetString(PyExc_IndexError, "first, length: tiles do not cover the cells");
    }
    release(held, ARRAYS);
    return found < 0 ? NULL : PyLong_FromSsize_t(found);
}
