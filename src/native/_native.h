/* What the C files of `tokenloom._native` share. */
#ifndef TOKENLOOM_NATIVE_H
#define TOKENLOOM_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

typedef Py_ssize_t Index;

/* A contiguous buffer of items of one size; -1 with an exception if it is not one. */
int get_items(PyObject *array, Py_buffer *view, Index item, int flags, const char *name);

/* An argument as a number; -1 with an exception if it is none. */
int get_int(PyObject *value, Index *out);

/* -1 with an exception unless as many arguments were given as wanted. */
int wrong_count(const char *what, Index found, Index wanted);

/* _packers.c */
PyObject *best_fit(PyObject *module, PyObject *const *args, Index nargs);
PyObject *first_fit(PyObject *module, PyObject *const *args, Index nargs);

/* _order.c */
PyObject *feistel(PyObject *module, PyObject *const *args, Index nargs);

#endif
