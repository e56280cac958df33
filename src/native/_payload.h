/* Files of tokens, read in place: _payload.c, _guard.c and _crc32c.c. */
#ifndef TOKENLOOM_PAYLOAD_H
#define TOKENLOOM_PAYLOAD_H

#include "_native.h"

enum { PAGE = 4096, DAMAGED = -2, GONE = -3 };

/* How a token is stored. */
typedef enum { SHORT, SIGNED, UNSIGNED } Stored;

static inline Index
bytes_of(Stored stored)
{
    return stored == SHORT ? 2 : 4;
}

/* What is copied soon (_cells.h). */
typedef struct Ahead Ahead;

/* Copy tokens to cells of 4 or 8 bytes (_cells.c). */
void copy_tokens(char *to, const char *from, Index count, Stored stored, Index wide, Ahead *ahead);

/* Mapped memory, from `begin` up to but not including `end`; `begin` is NULL if nothing is mapped. */
typedef struct {
    const char *begin, *end;
} Map;

typedef struct {
    PyObject_HEAD
    int fd, keep; /* whether pages that agreed are not checked again */
    Stored stored;
    int64_t bytes;
    Map map;
    PyObject *name;
    Py_buffer sums, checked; /* the crc32c of every page, and one byte for each: was it compared? */
} Payload;

/* What went wrong: with which payload, at which page, and how: an error number, -1 for a file that
 * ended early, DAMAGED for a wrong checksum, GONE for a page of a map that is not there any more. */
typedef struct {
    const Payload *payload;
    int64_t page;
    int how;
    int doubt; /* a run from a map ended in a zero: see `is_cut` */
} Trouble;

extern PyType_Spec payload_spec;

/* Read `count` tokens at a byte of a file, which must lie inside it, and compare them if nobody has;
 * -1 with `trouble` set. */
int copy_stored(char *to, const Payload *from, int64_t offset, Index count, Index wide, Ahead *ahead,
                Trouble *trouble);

/* Where bytes of a file can be read without looking again: in its map, and compared; NULL if not. */
const char *in_map(const Payload *from, int64_t offset, int64_t bytes);

/* Do some work that touches these maps; -1, with the place, if a page of them was not there. */
int guarded(const Map *maps, Index count, void (*work)(void *), void *given, const char **where);

/* Whether a mapped file is shorter than it was, and its first page that is not whole. The rest of
 * that page reads as zeros and raises no signal, so a run that ends there ends in a zero. */
int is_cut(const Payload *from, int64_t *page);

/* Whether a byte can be had without waiting; if nobody can tell, yes. */
int is_at_hand(const Payload *from, int64_t offset);

/* Tell the system that some bytes are needed soon. */
void announce(const Payload *from, int64_t offset, int64_t bytes);

/* Call this once before anything else here. */
void prepare_crc(void);

/* The crc32c of some bytes. */
uint32_t page_crc(const char *bytes, size_t count);

PyObject *crc32c(PyObject *module, PyObject *const *args, Index nargs);
PyObject *guard(PyObject *module, PyObject *const *args, Index nargs);

#endif
