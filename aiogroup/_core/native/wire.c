/* Reads keys, values and headers of a record of format 2. */

#include "native.h"

enum { SMALLEST_HEADER_SIZE = 2 }; /* of a record's header: an empty name and no value */

void *
damaged(const char *what)
{
    PyErr_SetString(PyExc_ValueError, what);
    return NULL;
}

/* Bytes that follow their length; None if it is negative (-1, but Java's consumer accepts any). */
PyObject *
read_bytes(Bytes *from)
{
    int64_t length;
    if (!read_varint(from, &length) || length > from->end - from->at) {
        return damaged("a length points behind the record's end");
    }
    if (length < 0) {
        return Py_NewRef(Py_None);
    }
    PyObject *bytes = PyBytes_FromStringAndSize((const char *)from->at, (Py_ssize_t)length);
    from->at += length;
    return bytes;
}

static PyObject *
read_header(Bytes *from)
{
    int64_t length;
    if (!read_varint(from, &length) || length < 0 || length > from->end - from->at) {
        return damaged("a header's name points behind the record's end");
    }
    /* No broker checks names: one that is not UTF-8 must not stop the partition. Java's consumer replaces it, too. */
    PyObject *name = PyUnicode_DecodeUTF8((const char *)from->at, (Py_ssize_t)length, "replace");
    if (name == NULL) {
        return NULL;
    }
    from->at += length;
    PyObject *value = read_bytes(from);
    if (value == NULL) {
        Py_DECREF(name);
        return NULL;
    }
    PyObject *header = PyTuple_New(2);
    if (header == NULL) {
        Py_DECREF(name);
        Py_DECREF(value);
        return NULL;
    }
    PyTuple_SET_ITEM(header, 0, name);
    PyTuple_SET_ITEM(header, 1, value);
    return header;
}

/* A tuple of (name, value) pairs; *headers stays NULL if there are none. */
int
read_headers(Bytes *from, PyObject **headers)
{
    int64_t count;
    if (!read_varint(from, &count) || count < 0 || count > (from->end - from->at) / SMALLEST_HEADER_SIZE) {
        damaged("a record cannot have so many headers");
        return 0;
    }
    if (count == 0) {
        return 1;
    }
    PyObject *all = PyTuple_New((Py_ssize_t)count);
    if (all == NULL) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *header = read_header(from);
        if (header == NULL) {
            Py_DECREF(all);
            return 0;
        }
        PyTuple_SET_ITEM(all, i, header);
    }
    *headers = all;
    return 1;
}
