/* Runs of tokens that were checked (_copier.c), and the cells they are copied to (_cells.c). */
#ifndef TOKENLOOM_CELLS_H
#define TOKENLOOM_CELLS_H

#include "_native.h"
#include "_payload.h"

enum { LINE = 64 }; /* bytes of a cache line */

typedef struct {
    union {
        const char *from; /* in memory */
        int64_t offset;   /* in the file of a payload */
    };
    const Payload *payload;
    int64_t length, cell;
    Stored stored;
    int padded; /* whether a line of memory after its last token may be read, too */
} Run;

/* The next bytes that are asked of memory, a line at a time, some lines before they are copied.
 * What is asked for beyond the last run, or of a file that is not mapped, does no harm. */
struct Ahead {
    const char *at, *stop; /* in the present run */
    const Run *run, *end;  /* the one after it, and the end of all */
};

/* Memory that views lie in, from `begin` up to but not including `end`. */
typedef struct {
    uintptr_t begin, end;
} Stretch;

/* What runs are in: an array, or a payload. */
typedef struct {
    Py_buffer view;   /* `obj` is NULL for a payload */
    Payload *payload; /* NULL for an array */
    Stored stored;
    int64_t tokens;
} Held;

typedef struct {
    PyObject_HEAD
    Held *held;
    Index count; /* arrays and payloads held */
    Stretch *lent;   /* all memory of the arrays, ascending, with gaps between them */
    Index stretches;
    Map *maps;   /* of the payloads that have one */
    Index mapped;
    Run *runs;   /* nobody else has them, so they stay as they were checked */
    Index total; /* runs */
    int ascend;  /* whether every run ends before the cell of the next one */
    int64_t end; /* the cell after the last run */
} Copier;

/* Which runs go into a batch, and what cells without a run hold. */
typedef struct {
    Index first, last, base;
    int32_t filler;
} Part;

/* Get `first, last, base, filler`, and check them against the runs; -1 with an exception. */
int get_part(const Copier *self, PyObject *const *args, Part *part);

/* -1 with an exception unless an output is apart from all that the copier reads or marks. */
int check_apart(const Copier *self, const Py_buffer *out, const char *name);

/* -1 with an exception unless the runs of a part have room in `total` cells. */
int check_room(const Copier *self, const Part *part, Index total);

/* Methods of a copier that write cells (_cells.c). */
PyObject *copier_fill(Copier *self, PyObject *const *args, Index nargs);
PyObject *copier_weave(Copier *self, PyObject *const *args, Index nargs);

#endif
