/* Reader: the records of one uncompressed v2 batch, built as they are taken. No length that the batch names is trusted:
 * each is held against the record that contains it, and that against the batch. */

#include "native.h"
#include <stddef.h>
#include <structmember.h>

/* Places in the header of a v2 batch. */
enum {
    AT_BASE_OFFSET = 0,
    AT_ATTRIBUTES = 21,
    AT_LAST_OFFSET_DELTA = 23,
    AT_BASE_TIMESTAMP = 27,
    AT_MAX_TIMESTAMP = 35,
    AT_RECORD_COUNT = 57,
    HEADER_SIZE = 61,
};
enum { LOG_APPEND_TIME = 0x08 };
enum { SMALLEST_HEADER_SIZE = 2 }; /* of a record's header: an empty name and no value */

typedef struct {
    PyObject_HEAD
    PyObject *origin;
    Py_buffer data;
    Py_ssize_t pos;
    long long left; /* records that were not read yet */
    int64_t base_offset;
    int64_t last_offset_delta;
    int64_t previous_delta;
    int64_t base_timestamp; /* of the batch itself with LOG_APPEND_TIME */
    int has_append_time;
} Reader;

static uint64_t
big_endian(const uint8_t *at, int size)
{
    uint64_t number = 0;
    for (int i = 0; i < size; i++) {
        number = number << 8 | at[i];
    }
    return number;
}

static int
reader_init(Reader *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"header", "payload", "origin", NULL};
    Py_buffer header;
    PyObject *origin;
    if (self->origin != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "a Reader is made once");
        return -1;
    }
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*y*O!:Reader", names, &header, &self->data, &PyTuple_Type,
                                     &origin)) {
        return -1;
    }
    if (header.len < HEADER_SIZE || PyTuple_GET_SIZE(origin) != ORIGIN_SIZE ||
        !PyTuple_Check(PyTuple_GET_ITEM(origin, ORIGIN_TP)) ||
        PyTuple_GET_SIZE(PyTuple_GET_ITEM(origin, ORIGIN_TP)) != 2) {
        PyBuffer_Release(&header);
        PyBuffer_Release(&self->data);
        PyErr_SetString(PyExc_ValueError, "a v2 header and (tp, timestamp type, lane, acknowledge) are needed");
        return -1;
    }
    const uint8_t *at = header.buf;
    self->has_append_time = (big_endian(at + AT_ATTRIBUTES, 2) & LOG_APPEND_TIME) != 0;
    self->base_offset = (int64_t)big_endian(at + AT_BASE_OFFSET, 8);
    self->last_offset_delta = (int32_t)big_endian(at + AT_LAST_OFFSET_DELTA, 4);
    self->base_timestamp = (int64_t)big_endian(at + (self->has_append_time ? AT_MAX_TIMESTAMP : AT_BASE_TIMESTAMP), 8);
    self->left = (int32_t)big_endian(at + AT_RECORD_COUNT, 4);
    self->previous_delta = -1;
    self->pos = 0;
    self->origin = Py_NewRef(origin);
    PyBuffer_Release(&header);
    return 0;
}

static int
reader_traverse(Reader *self, visitproc visit, void *arg)
{
    Py_VISIT(self->origin);
    Py_VISIT(self->data.obj);
    return 0;
}

static void
reader_dealloc(Reader *self)
{
    PyObject_GC_UnTrack(self);
    if (self->origin != NULL) {
        Py_DECREF(self->origin);
        PyBuffer_Release(&self->data);
    }
    Py_TYPE(self)->tp_free(self);
}

/* Damage: NULL with a ValueError that says what is wrong. */

static void *
damaged(const char *what)
{
    PyErr_SetString(PyExc_ValueError, what);
    return NULL;
}

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} Bytes;

/* A zigzag number of at most 64 bits; 0 when the bytes end before it. */
static inline int
read_varint(Bytes *from, int64_t *number)
{
    uint64_t raw = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (from->at >= from->end) {
            return 0;
        }
        uint8_t byte = *from->at++;
        raw |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *number = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            return 1;
        }
    }
    return 0;
}

/* Bytes behind their length; None where that is -1. */
static PyObject *
read_bytes(Bytes *from)
{
    int64_t length;
    if (!read_varint(from, &length) || length < -1 || length > from->end - from->at) {
        return damaged("a length points behind the record's end");
    }
    if (length == -1) {
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
    PyObject *name = PyUnicode_DecodeUTF8((const char *)from->at, (Py_ssize_t)length, NULL);
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

/* A tuple of (name, value); *headers stays NULL where there are none. */
static int
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

/* Where a record ends, its offset and timestamp; `record` is left at its key. */
static int
read_place(Reader *self, Bytes *record, int64_t *delta, int64_t *timestamp_delta)
{
    const uint8_t *begin = self->data.buf;
    Bytes all = {begin + self->pos, begin + self->data.len};
    int64_t size;
    if (!read_varint(&all, &size) || size < 1 || size > all.end - all.at) {
        damaged("a record's size points behind the batch's end");
        return 0;
    }
    *record = (Bytes){all.at + 1, all.at + size}; /* behind the attributes, of which there are none */
    if (!read_varint(record, timestamp_delta) || !read_varint(record, delta)) {
        damaged("a record is cut off");
        return 0;
    }
    if (*delta <= self->previous_delta || *delta > self->last_offset_delta) {
        damaged("offsets are not in order");
        return 0;
    }
    return 1;
}

static PyObject *
read_record(Reader *self, Bytes record, int64_t delta, int64_t timestamp_delta)
{
    PyObject *key = read_bytes(&record);
    if (key == NULL) {
        return NULL;
    }
    PyObject *value = read_bytes(&record);
    PyObject *headers = NULL;
    if (value == NULL || !read_headers(&record, &headers)) {
        Py_DECREF(key);
        Py_XDECREF(value);
        return NULL;
    }
    if (record.at != record.end) {
        Py_DECREF(key);
        Py_DECREF(value);
        Py_XDECREF(headers);
        return damaged("bytes are left behind a record");
    }
    uint64_t since = self->has_append_time ? 0 : (uint64_t)timestamp_delta; /* wraps around instead of overflowing */
    return record_new(self->origin, self->base_offset + delta, (int64_t)((uint64_t)self->base_timestamp + since), key,
                      value, headers);
}

static PyObject *
reader_read(Reader *self, PyObject *const *args, Py_ssize_t args_count)
{
    if (args_count != 2) {
        PyErr_SetString(PyExc_TypeError, "read(max_records, from_offset)");
        return NULL;
    }
    Py_ssize_t max_records = PyLong_AsSsize_t(args[0]);
    long long from_offset = PyLong_AsLongLong(args[1]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (self->origin == NULL || max_records < 1) {
        PyErr_SetString(PyExc_ValueError, "max_records must be at least 1");
        return NULL;
    }
    if (max_records > self->left) {
        max_records = self->left > 0 ? (Py_ssize_t)self->left : 0;
    }
    PyObject *records = PyList_New(max_records);
    if (records == NULL) {
        return NULL;
    }
    Py_ssize_t count = 0;
    while (count < max_records && self->left > 0) {
        Bytes bytes;
        int64_t delta, timestamp_delta;
        PyObject *record = NULL;
        if (!read_place(self, &bytes, &delta, &timestamp_delta)) {
            break;
        }
        if (self->base_offset + delta >= from_offset) {
            record = read_record(self, bytes, delta, timestamp_delta);
            if (record == NULL) {
                break;
            }
            PyList_SET_ITEM(records, count++, record);
        }
        self->pos = bytes.end - (const uint8_t *)self->data.buf;
        self->previous_delta = delta;
        self->left--;
    }
    if (PyErr_Occurred()) {
        /* What stands before the damage is given first; the next call meets it again. */
        if (count == 0) {
            Py_DECREF(records);
            return NULL;
        }
        PyErr_Clear();
    }
    if (count < max_records && PyList_SetSlice(records, count, max_records, NULL) < 0) {
        Py_DECREF(records);
        return NULL;
    }
    return records;
}

static PyObject *
reader_finish(Reader *self, PyObject *unused)
{
    if (self->pos != self->data.len) {
        return damaged("bytes are left behind the last record");
    }
    Py_RETURN_NONE;
}

static PyMethodDef reader_methods[] = {
    {"read", (PyCFunction)(void (*)(void))reader_read, METH_FASTCALL, NULL},
    {"finish", (PyCFunction)reader_finish, METH_NOARGS, NULL},
    {NULL},
};

static PyMemberDef reader_members[] = {
    {"left", T_LONGLONG, offsetof(Reader, left), READONLY, NULL},
    {NULL},
};

PyTypeObject Reader_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "aiogroup.native._native.Reader",
    .tp_basicsize = sizeof(Reader),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)reader_init,
    .tp_dealloc = (destructor)reader_dealloc,
    .tp_traverse = (traverseproc)reader_traverse,
    .tp_methods = reader_methods,
    .tp_members = reader_members,
};
