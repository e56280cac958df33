/* The module `tokenloom._native`: all entries, and nothing else. Runs of tokens are in
 * _copier.c, loops over cells in _cells.c, files of tokens in _payload.c (with _guard.c and
 * _crc32c.c), the packers in _packers.c, orders in _order.c, mixing in _merge.c, and what all do with their arguments in
 * _arguments.c.
 *
 * Optional: `tokenloom.native` says whether this module is available; without it NumPy code gives
 * the same bytes. It uses only Python's limited API and no NumPy headers, so arrays come as
 * buffers. No input is trusted: the rules are in _native.h.
 */
#include "_native.h"
#include "_payload.h"

PyDoc_STRVAR(paint_doc,
    "paint(first, length, segment, segment_ids, position_ids, loss_mask, tokens, labels, ignore)\n"
    "--\n\nFill the arrays that are not None, tile by tile; see tokenloom.batch.paint.");

/* The type of payloads, which copiers ask for. */
typedef struct {
    PyTypeObject *payload;
} State;

static int
module_exec(PyObject *module)
{
    State *state = PyModule_GetState(module);
    PyObject *payload = PyType_FromModuleAndSpec(module, &payload_spec, NULL);
    if (!payload)
        return -1;
    state->payload = (PyTypeObject *)payload; /* and its reference */
    PyObject *copier = PyType_FromModuleAndSpec(module, &copier_spec, NULL);
    int failed = !copier || PyModule_AddObjectRef(module, "Payload", payload) < 0 ||
                 PyModule_AddObjectRef(module, "Copier", copier) < 0;
    Py_XDECREF(copier);
    prepare_crc();
    return failed ? -1 : add_merger(module);
}

static int
module_traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    Py_VISIT(state->payload);
    return 0;
}

static int
module_clear(PyObject *module)
{
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->payload);
    return 0;
}

static void
module_free(void *module)
{
    module_clear(module);
}

static PyMethodDef module_methods[] = {
    {"paint", (PyCFunction)(void (*)(void))paint, METH_FASTCALL, paint_doc},
    {"tile", (PyCFunction)(void (*)(void))tile, METH_FASTCALL,
     "tile(frame, at, length, start, flags, first, cells, segment, continues, width)\n--\n\n"
     "See tokenloom.batch.paint."},
    {"cut", (PyCFunction)(void (*)(void))cut, METH_FASTCALL,
     "cut(chunks, base, number, start, stop, edges, document, begin, length, address)\n--\n\n"
     "See tokenloom.store.offsets."},
    {"gather", (PyCFunction)(void (*)(void))gather, METH_FASTCALL,
     "gather(column, first, count, base, out)\n--\n\nSee tokenloom.layout.pack.row_cache."},
    {"best_fit", (PyCFunction)(void (*)(void))best_fit, METH_FASTCALL,
     "best_fit(lengths, capacity, most, out)\n--\n\nSee tokenloom.layout.pack.packers."},
    {"first_fit", (PyCFunction)(void (*)(void))first_fit, METH_FASTCALL,
     "first_fit(lengths, capacity, most, out)\n--\n\nSee tokenloom.layout.pack.packers."},
    {"feistel", (PyCFunction)(void (*)(void))feistel, METH_FASTCALL,
     "feistel(x, which, keys, n, side, backwards, out)\n--\n\nSee tokenloom.random.permute."},
    {"crc32c", (PyCFunction)(void (*)(void))crc32c, METH_FASTCALL,
     "crc32c(data, plain)\n--\n\nThe checksum of bytes; plain: by tables, else by the processor."},
    {"guard", (PyCFunction)(void (*)(void))guard, METH_FASTCALL,
     "guard()\n--\n\nWhether a page that is missing from a map is an error and not the end."},
    {"hash_rank", (PyCFunction)(void (*)(void))hash_rank, METH_FASTCALL,
     "hash_rank(keys, sizes, x, backwards, out)\n--\n\nSee tokenloom.random.permute."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, module_exec}, {0, NULL}};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT, "tokenloom._native", "See tokenloom.native.", sizeof(State),
    module_methods, module_slots, module_traverse, module_clear, module_free};

PyMODINIT_FUNC
PyInit__native(void)
{
    return PyModuleDef_Init(&module_def);
}
