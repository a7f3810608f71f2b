/* Reader: the records of an uncompressed v2 batch, and of similar batches after it, built when they are read. No length
 * in a batch is trusted: each is checked against the record that contains it, and the record's against the batch. */

#include "native.h"
#include <stddef.h>
#include <structmember.h>

/* Places in the header of a v2 batch. */
enum {
    AT_BASE_OFFSET = 0,
    AT_LENGTH = 8, /* of what follows this field */
    AT_MAGIC = 16,
    AT_CRC = 17,
    AT_ATTRIBUTES = 21,
    AT_LAST_OFFSET_DELTA = 23,
    AT_BASE_TIMESTAMP = 27,
    AT_MAX_TIMESTAMP = 35,
    AT_RECORD_COUNT = 57,
    HEADER_SIZE = 61,
};
/* A record's size, attributes, two deltas, two lengths and number of headers, of one byte each. */
enum { SMALLEST_RECORD = 7 };
enum { CODEC = 0x07, LOG_APPEND_TIME = 0x08, TRANSACTIONAL = 0x10, CONTROL = 0x20 };

typedef struct {
    PyObject_HEAD
    PyObject *origin;
    PyObject *check;   /* a function that gives the CRC-32C of bytes, or None */
    Py_buffer data;    /* the payload of the first batch */
    Py_buffer behind;  /* the bytes after that batch; no buffer if reading must end with it */
    Py_ssize_t passed; /* the bytes of `behind` in batches that were begun */
    int is_committed;
    /* The batch that is being read. */
    const uint8_t *at;
    const uint8_t *end;
    long long left; /* records that are not read yet */
    long long base_offset;
    long long next_offset; /* the offset after the batch */
    int64_t previous_offset;
    int64_t base_timestamp; /* of the batch itself with LOG_APPEND_TIME */
    int has_append_time;
} Reader;

static void
begin_batch(Reader *self, const uint8_t *header, const uint8_t *payload, Py_ssize_t size)
{
    self->has_append_time = (big_endian(header + AT_ATTRIBUTES, 2) & LOG_APPEND_TIME) != 0;
    self->base_offset = (int64_t)big_endian(header + AT_BASE_OFFSET, 8);
    int32_t last_offset_delta = (int32_t)big_endian(header + AT_LAST_OFFSET_DELTA, 4);
    self->next_offset = (int64_t)((uint64_t)self->base_offset + (uint64_t)(int64_t)last_offset_delta + 1);
    self->base_timestamp =
        (int64_t)big_endian(header + (self->has_append_time ? AT_MAX_TIMESTAMP : AT_BASE_TIMESTAMP), 8);
    self->left = (int32_t)big_endian(header + AT_RECORD_COUNT, 4);
    self->previous_offset = self->base_offset - 1;
    self->at = payload;
    self->end = payload + size;
}

static int
is_origin(PyObject *object)
{
    if (!PyTuple_Check(object) || PyTuple_GET_SIZE(object) != ORIGIN_SIZE) {
        return 0;
    }
    PyObject *tp = PyTuple_GET_ITEM(object, ORIGIN_TP);
    return PyTuple_Check(tp) && PyTuple_GET_SIZE(tp) == 2;
}

static int
reader_init(Reader *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"header", "payload", "origin", "behind", "check", "committed", NULL};
    Py_buffer header;
    PyObject *origin, *behind = Py_None, *check = Py_None;
    int is_committed = 0;
    if (self->origin != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "a Reader is made once");
        return -1;
    }
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*y*O!|OOp:Reader", names, &header, &self->data, &PyTuple_Type,
                                     &origin, &behind, &check, &is_committed)) {
        return -1;
    }
    const uint8_t *at = header.buf;
    int is_valid = header.len >= HEADER_SIZE && big_endian(at, 8) <= LAST_BASE_OFFSET && is_origin(origin);
    if (!is_valid) {
        PyErr_SetString(PyExc_ValueError, "a v2 header and (tp, timestamp type, lane, acknowledge) are needed");
    }
    if (!is_valid || (behind != Py_None && PyObject_GetBuffer(behind, &self->behind, PyBUF_SIMPLE) < 0)) {
        PyBuffer_Release(&header);
        PyBuffer_Release(&self->data);
        return -1;
    }
    begin_batch(self, at, self->data.buf, self->data.len);
    self->is_committed = is_committed;
    self->check = Py_NewRef(check);
    self->origin = Py_NewRef(origin);
    PyBuffer_Release(&header);
    return 0;
}

/* The buffers are not visited: a memoryview that the collector clears while something reads it crashes on release. */
static int
reader_traverse(Reader *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->origin);
    Py_VISIT(self->check);
    return 0;
}

static void
reader_dealloc(Reader *self)
{
    PyObject_GC_UnTrack(self);
    if (self->origin != NULL) {
        Py_DECREF(self->origin);
        Py_DECREF(self->check);
        PyBuffer_Release(&self->data);
        PyBuffer_Release(&self->behind);
    }
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

/* Reads the end of a record, its offset and its timestamp; leaves `record` at the key. */
static int
read_place(Reader *self, Bytes *record, int64_t *offset, int64_t *timestamp_delta)
{
    Bytes all = {self->at, self->end};
    int64_t size, delta;
    if (!read_varint(&all, &size) || size < 1 || size > all.end - all.at) {
        damaged("a record's size points behind the batch's end");
        return 0;
    }
    *record = (Bytes){all.at + 1, all.at + size}; /* after the attributes, which have no meaning yet */
    if (!read_varint(record, timestamp_delta) || !read_varint(record, &delta)) {
        damaged("a record is cut off");
        return 0;
    }
    *offset = self->base_offset + (delta & INT32_MAX);
    if (delta < 0 || delta > INT32_MAX || *offset <= self->previous_offset || *offset >= self->next_offset) {
        damaged("offsets are not in order");
        return 0;
    }
    return 1;
}

static PyObject *
read_record(State *state, Reader *self, Bytes record, int64_t offset, int64_t timestamp_delta)
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
    int64_t timestamp = (int64_t)((uint64_t)self->base_timestamp + since);
    return record_new(state, self->origin, offset, timestamp, key, value, headers);
}

/* Whether the checksum of a batch is right; -1 with an error. */
static int
is_intact(Reader *self, const uint8_t *batch, Py_ssize_t size)
{
    if (self->check == Py_None) {
        return 1;
    }
    PyObject *checked = PyMemoryView_FromMemory((char *)batch + AT_ATTRIBUTES, size - AT_ATTRIBUTES, PyBUF_READ);
    if (checked == NULL) {
        return -1;
    }
    PyObject *crc = PyObject_CallOneArg(self->check, checked);
    Py_DECREF(checked);
    if (crc == NULL) {
        return -1;
    }
    unsigned long sum = PyLong_AsUnsignedLong(crc);
    Py_DECREF(crc);
    return PyErr_Occurred() ? -1 : sum == big_endian(batch + AT_CRC, 4);
}

/* Go on to the next batch, if it has plain records like this one: 1 if begun, 0 if not, -1 with an error. Anything
 * special about a batch, including damage, is left to the caller that made the reader. */
static int
read_on(Reader *self)
{
    Py_ssize_t room = self->behind.len - self->passed;
    if (self->at != self->end || self->behind.buf == NULL || room <= HEADER_SIZE) {
        return 0;
    }
    const uint8_t *batch = (const uint8_t *)self->behind.buf + self->passed;
    int64_t size = (int64_t)(int32_t)big_endian(batch + AT_LENGTH, 4) + AT_LENGTH + 4;
    if (batch[AT_MAGIC] != 2 || size <= HEADER_SIZE || size > room) {
        return 0;
    }
    uint64_t attributes = big_endian(batch + AT_ATTRIBUTES, 2);
    int is_alike = ((attributes & LOG_APPEND_TIME) != 0) == self->has_append_time;
    if (!is_alike || attributes & (CODEC | CONTROL) || (self->is_committed && attributes & TRANSACTIONAL)) {
        return 0;
    }
    int64_t base_offset = (int64_t)big_endian(batch + AT_BASE_OFFSET, 8);
    if (base_offset < self->next_offset || base_offset > LAST_BASE_OFFSET ||
        (int32_t)big_endian(batch + AT_LAST_OFFSET_DELTA, 4) < 0 || (int32_t)big_endian(batch + AT_RECORD_COUNT, 4) < 1) {
        return 0;
    }
    int intact = is_intact(self, batch, (Py_ssize_t)size);
    if (intact == 1) {
        begin_batch(self, batch, batch + HEADER_SIZE, (Py_ssize_t)size - HEADER_SIZE);
        self->passed += (Py_ssize_t)size;
    }
    return intact;
}

/* The next record from `from_offset` on; NULL at the end of the readable batches, or with an error. */
static PyObject *
next_record(State *state, Reader *self, int64_t from_offset)
{
    while (self->left > 0 || read_on(self) == 1) {
        Bytes bytes;
        int64_t offset, timestamp_delta;
        PyObject *record = NULL;
        if (!read_place(self, &bytes, &offset, &timestamp_delta)) {
            return NULL;
        }
        if (offset >= from_offset) {
            record = read_record(state, self, bytes, offset, timestamp_delta);
            if (record == NULL) {
                return NULL;
            }
        }
        self->at = bytes.end;
        self->previous_offset = offset;
        self->left--;
        if (record != NULL) {
            return record;
        }
    }
    return NULL;
}

/* The bytes left cannot hold more records than this: no memory is taken for a false count in the header. */
static Py_ssize_t
most_records(const Reader *self)
{
    return ((self->end - self->at) + (self->behind.len - self->passed)) / SMALLEST_RECORD + 1;
}

static PyObject *
reader_read(Reader *self, PyObject *const *args, Py_ssize_t args_count)
{
    if (args_count != 2) {
        PyErr_SetString(PyExc_TypeError, "read(max_records, from_offset)");
        return NULL;
    }
    Py_ssize_t max_records = PyLong_AsSsize_t(args[0]);
    if (max_records == -1 && PyErr_Occurred()) {
        return NULL;
    }
    long long from_offset = PyLong_AsLongLong(args[1]);
    if (from_offset == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (self->origin == NULL || max_records < 1) {
        PyErr_SetString(PyExc_ValueError, "max_records must be at least 1");
        return NULL;
    }
    State *state = state_of(Py_TYPE(self));
    if (state == NULL) {
        return NULL;
    }
    Py_ssize_t room = most_records(self);
    if (max_records > room) {
        max_records = room;
    }
    PyObject *records = PyList_New(max_records);
    if (records == NULL) {
        return NULL;
    }
    Py_ssize_t count = 0;
    PyObject *record;
    while (count < max_records && (record = next_record(state, self, from_offset)) != NULL) {
        PyList_SET_ITEM(records, count++, record);
    }
    if (PyErr_Occurred()) {
        /* The records before the damage are returned first; the next call finds the damage again. */
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

/* As pure.read_plain says. The reader lives no longer than the call, and so than the arguments that it refers to. */
PyObject *
read_plain(PyObject *module, PyObject *const *args, Py_ssize_t args_count)
{
    if (args_count != 6 || !is_origin(args[3])) {
        PyErr_SetString(PyExc_TypeError, "read_plain(data, from_offset, max_records, origin, check, committed)");
        return NULL;
    }
    long long from_offset = PyLong_AsLongLong(args[1]);
    Py_ssize_t max_records = from_offset == -1 && PyErr_Occurred() ? -1 : PyLong_AsSsize_t(args[2]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    State *state = usable(state_of_module(module));
    if (state == NULL) {
        return NULL;
    }
    Reader reader = {.origin = args[3], .check = args[4], .is_committed = PyObject_IsTrue(args[5])};
    if (reader.is_committed < 0 || PyObject_GetBuffer(args[0], &reader.behind, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    PyObject *records = PyList_New(0), *record;
    while (records != NULL && PyList_GET_SIZE(records) < max_records &&
           (record = next_record(state, &reader, from_offset)) != NULL) {
        if (PyList_Append(records, record) < 0) {
            Py_CLEAR(records);
        }
        Py_DECREF(record);
    }
    int is_whole = reader.left <= 0 && reader.at == reader.end && reader.passed == reader.behind.len;
    PyBuffer_Release(&reader.behind);
    if (PyErr_Occurred()) {
        Py_XDECREF(records);
        if (!PyErr_ExceptionMatches(PyExc_ValueError)) {
            return NULL;
        }
        PyErr_Clear(); /* damage: whoever reads batch by batch tells of it */
        Py_RETURN_NONE;
    }
    if (!is_whole || PyList_GET_SIZE(records) == 0) {
        Py_DECREF(records);
        Py_RETURN_NONE;
    }
    return Py_BuildValue("(NL)", records, reader.next_offset);
}

static PyObject *
reader_finish(Reader *self, PyObject *unused)
{
    if (self->at != self->end) {
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
    {"base_offset", T_LONGLONG, offsetof(Reader, base_offset), READONLY, NULL},
    {"next_offset", T_LONGLONG, offsetof(Reader, next_offset), READONLY, NULL},
    {"passed", T_PYSSIZET, offsetof(Reader, passed), READONLY, NULL},
    {NULL},
};

static PyType_Slot reader_slots[] = {
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, reader_init},
    {Py_tp_dealloc, reader_dealloc},
    {Py_tp_traverse, reader_traverse},
    {Py_tp_methods, reader_methods},
    {Py_tp_members, reader_members},
    {0, NULL},
};

PyType_Spec reader_spec = {
    .name = "aiogroup._core.native._native.Reader",
    .basicsize = sizeof(Reader),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = reader_slots,
};
