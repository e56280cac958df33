/* The module `tokenloom._native`: all entries, and nothing else. Loops over cells are in _cells.c,
 * the packers in _packers.c, orders in _order.c, and what all do with their arguments in
 * _arguments.c.
 *
 * Optional: `tokenloom.native` says whether this module is available; without it NumPy code gives
 * the same bytes. It uses only Python's limited API and no NumPy headers, so arrays come as
 * buffers. No input is trusted: the rules are in _native.h.
 */
#include "_native.h"

PyDoc_STRVAR(paint_doc,
    "paint(first, length, segment, segment_ids, position_ids, loss_mask, tokens, labels, ignore)\n"
    "--\n\nFill the arrays that are not None, tile by tile; see tokenloom.batch.paint.");

static int
module_exec(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&copier_spec);
    int failed = !type || PyModule_AddObjectRef(module, "Copier", type) < 0;
    Py_XDECREF(type);
    return failed ? -1 : 0;
}

static PyMethodDef module_methods[] = {
    {"paint", (PyCFunction)(void (*)(void))paint, METH_FASTCALL, paint_doc},
    {"best_fit", (PyCFunction)(void (*)(void))best_fit, METH_FASTCALL,
     "best_fit(lengths, capacity, most, out)\n--\n\nSee tokenloom.layout.pack.packers."},
    {"first_fit", (PyCFunction)(void (*)(void))first_fit, METH_FASTCALL,
     "first_fit(lengths, capacity, most, out)\n--\n\nSee tokenloom.layout.pack.packers."},
    {"feistel", (PyCFunction)(void (*)(void))feistel, METH_FASTCALL,
     "feistel(x, which, keys, n, side, backwards, out)\n--\n\nSee tokenloom.random.permute."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, module_exec}, {0, NULL}};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT, "tokenloom._native", "See tokenloom.native.", 0,
    module_methods, module_slots, NULL, NULL, NULL};

PyMODINIT_FUNC
PyInit__native(void)
{
    return PyModuleDef_Init(&module_def);
}
