/* What the C files of `tokenloom._native` share.
 *
 * The rules for every entry, so that no caller can make it read or write outside its arrays:
 *
 * 1. Every array is checked for dtype, byte order, alignment, contiguity and its number of items,
 *    and for memory that it shares with an array that is written to, before the loop starts.
 * 2. Loops run without the GIL, so another thread may change what an array holds, though not where
 *    it is. A number that decides an address is copied, or read once (READ), and checked then.
 * 3. Numbers from outside are compared before they are added up; signed sums cannot overflow.
 *
 * `make sanitize` runs all entries under the address and undefined-behaviour sanitizers.
 */
#ifndef TOKENLOOM_NATIVE_H
#define TOKENLOOM_NATIVE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

typedef Py_ssize_t Index;

/* Types of items. TOKENS and COLUMN are copied byte by byte, so their arrays may lie at any address;
 * CELLS are what tokens are widened to. */
typedef enum { INT32, INT64, UINT64, WORD64, BOOL, TOKENS, CELLS, UINT32, BYTES, FLOAT64,
               COLUMN } Type;

/* What an entry wants of an array. */
typedef struct {
    const char *name;
    Type type;
    int written, optional;
} Wanted;

/* Get some arrays; those that are optional and None get `buf` and `obj` NULL. -1, with an exception
 * that names the argument and with nothing held, if one is not what is wanted, or shares memory with
 * one that is written to. */
int get_arrays(PyObject *const *arrays, Py_buffer *views, const Wanted *wanted, int count);

/* The same for one array. */
int get_array(PyObject *array, Py_buffer *view, const Wanted *wanted);

/* Give back arrays that were got. */
void release(Py_buffer *views, int count);

/* Whether two arrays share a byte. */
int share(const Py_buffer *one, const Py_buffer *other);

/* Put the name of an argument before the exception that is set; a BufferError becomes a ValueError. */
void name_it(const char *name);

/* Get an argument as an integer of some range; -1 with an exception if it is not one. */
int get_int(PyObject *value, Index *out, Index least, Index most, const char *name);

/* -1 with an exception unless the number of arguments is the one wanted. */
int wrong_count(const char *what, Index found, Index wanted);

/* The value of a number now: the compiler may not read it again later, when it may have changed. */
#define READ(type, place) (*(const volatile type *)(place))

/* _copier.c */
extern PyType_Spec copier_spec;

/* _cells.c */
PyObject *paint(PyObject *module, PyObject *const *args, Index nargs);

/* _merge.c */
int add_merger(PyObject *module);

/* _pieces.c */
PyObject *cut(PyObject *module, PyObject *const *args, Index nargs);
PyObject *gather(PyObject *module, PyObject *const *args, Index nargs);

/* _tiles.c */
PyObject *tile(PyObject *module, PyObject *const *args, Index nargs);

/* _packers.c */
PyObject *best_fit(PyObject *module, PyObject *const *args, Index nargs);
PyObject *first_fit(PyObject *module, PyObject *const *args, Index nargs);

/* _order.c */
PyObject *feistel(PyObject *module, PyObject *const *args, Index nargs);
PyObject *hash_rank(PyObject *module, PyObject *const *args, Index nargs);

#endif
