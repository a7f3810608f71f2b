#include "native.h"

/* As pure.blank. Memory that nobody wrote to costs nothing before it is filled, piece by piece. */
static PyObject *
blank(PyObject *module, PyObject *size)
{
    (void)module;
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
    {"extent", extent, METH_VARARGS, NULL},
    {"next_records", next_records, METH_VARARGS, NULL},
    {"read_times", read_times, METH_VARARGS, NULL},
    {NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "aiogroup.native._native",
    .m_doc = "What is done once per record, compiled; aiogroup.native.pure is the same in Python.",
    .m_size = -1,
    .m_methods = functions,
};

static int
add_type(PyObject *target, const char *name, PyTypeObject *type)
{
    if (PyType_Ready(type) < 0) {
        return -1;
    }
    return name == NULL ? 0 : PyModule_AddObjectRef(target, name, (PyObject *)type);
}

PyMODINIT_FUNC
PyInit__native(void)
{
    PyObject *self = PyModule_Create(&module);
    if (self == NULL) {
        return NULL;
    }
    if (add_type(self, "Record", &Record_Type) < 0 || add_type(self, "Reader", &Reader_Type) < 0 ||
        add_type(self, "Cursor", &Cursor_Type) < 0 || add_type(self, NULL, &Next_Type) < 0 ||
        add_type(self, "Heads", &Heads_Type) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return self;
}
