#include "native.h"

/* As pure.blank. Memory that was never written costs nothing until it is filled, piece by piece. */
static PyObject *
blank(PyObject *module, PyObject *size)
{
    Py_ssize_t count = PyLong_AsSsize_t(size);
    if (count < 0) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "negative count");
        }
        return NULL;
    }
    return PyByteArray_FromStringAndSize(NULL, count);
}

static PyMethodDef functions[] = {
    {"blank", blank, METH_O, NULL},
    {"columns", columns, METH_O, NULL},
    {"extent", extent, METH_VARARGS, NULL},
    {"next_records", next_records, METH_VARARGS, NULL},
    {"read_plain", (PyCFunction)(void (*)(void))read_plain, METH_FASTCALL, NULL},
    {"read_fetch", (PyCFunction)(void (*)(void))read_fetch, METH_FASTCALL, NULL},
    {"read_times", read_times, METH_VARARGS, NULL},
    {"write_fetch", (PyCFunction)(void (*)(void))write_fetch, METH_FASTCALL, NULL},
    {NULL},
};

static int
add_type(PyObject *module, PyTypeObject **type, PyType_Spec *spec, int is_public)
{
    *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return *type == NULL || (is_public && PyModule_AddType(module, *type) < 0) ? -1 : 0;
}

static int
module_exec(PyObject *module)
{
    State *state = state_of_module(module);
    if (add_type(module, &state->record_type, &record_spec, 1) < 0 ||
        add_type(module, &state->reader_type, &reader_spec, 1) < 0 ||
        add_type(module, &state->cursor_type, &cursor_spec, 1) < 0 ||
        add_type(module, &state->next_type, &next_spec, 0) < 0 ||
        add_type(module, &state->heads_type, &heads_spec, 1) < 0 ||
        add_type(module, &state->maker_type, &maker_spec, 1) < 0) {
        return -1;
    }
    return 0;
}

static int
module_traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = state_of_module(module);
    Py_VISIT(state->record_type);
    Py_VISIT(state->reader_type);
    Py_VISIT(state->cursor_type);
    Py_VISIT(state->next_type);
    Py_VISIT(state->heads_type);
    Py_VISIT(state->maker_type);
    return records_traverse(state, visit, arg);
}

static int
module_clear(PyObject *module)
{
    State *state = state_of_module(module);
    records_let_go(state);
    Py_CLEAR(state->record_type);
    Py_CLEAR(state->reader_type);
    Py_CLEAR(state->cursor_type);
    Py_CLEAR(state->next_type);
    Py_CLEAR(state->heads_type);
    Py_CLEAR(state->maker_type);
    return 0;
}

static void
module_free(void *module)
{
    module_clear(module);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, module_exec},
#if PY_VERSION_HEX >= 0x030c0000
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
    /* No Py_mod_gil: without the GIL, threads could take the same spare record. A free-threaded build enables it. */
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "aiogroup._core.native._native",
    .m_doc = "What is done once per record, compiled; aiogroup._core.native.pure is the same in Python.",
    .m_size = sizeof(State),
    .m_methods = functions,
    .m_slots = slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC
PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
