/* What the C files of `tokenloom._native` share. */
#ifndef TOKENLOOM_NATIVE_H
#define TOKENLOOM_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

typedef Py_ssize_t Index;

/* Get a contiguous buffer of items of the given size; -1 with an exception if it is not one. */
int get_items(PyObject *array, Py_buffer *view, Index item, int flags, const char *name);

/* Get an argument as an integer; -1 with an exception if it is not one. */
int get_int(PyObject *value, Index *out);

/* -1 with an exception unless the number of arguments is the one wanted. */
int wrong_count(const char *what, Index found, Index wanted);

/* _packers.c */
PyObject *best_fit(PyObject *module, PyObject *const *args, Index nargs);
PyObject *first_fit(PyObject *module, PyObject *const *args, Index nargs);

/* _order.c */
PyObject *feistel(PyObject *module, PyObject *const *args, Index nargs);

#endif
