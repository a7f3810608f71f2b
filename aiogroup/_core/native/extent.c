/* extent: as pure.extent. Only headers are read; the records after them are skipped. */

#include "native.h"

enum {
    AT_LENGTH = 8,
    AT_EPOCH = 12,
    AT_MAGIC = 16,
    AT_LAST_OFFSET_DELTA = 23,
    HEAD_SIZE = 27,
    SMALLEST_LENGTH = 14, /* a v0 message without key and value */
};
enum { NO_EPOCH = -1 };

static int
add_epoch(PyObject *epochs, int64_t offset, int32_t epoch)
{
    PyObject *run = Py_BuildValue("(Li)", (long long)offset, (int)epoch);
    if (run == NULL) {
        return -1;
    }
    int failed = PyList_Append(epochs, run);
    Py_DECREF(run);
    return failed;
}

/* Go over all complete batches. Sets `is_damaged` if nothing can follow them; returns -1 with an error. */
static int
walk(Bytes all, int64_t *end, int *is_damaged, PyObject *epochs)
{
    int32_t last_epoch = 0;
    while (all.end - all.at > AT_MAGIC) {
        int64_t length = (int32_t)big_endian(all.at + AT_LENGTH, 4);
        int64_t base_offset = (int64_t)big_endian(all.at, 8);
        if (length < SMALLEST_LENGTH) {
            *is_damaged = 1;
            return 0;
        }
        if (length + AT_LENGTH + 4 > all.end - all.at) {
            return 0;
        }
        int is_old = all.at[AT_MAGIC] < 2; /* older formats have other fields there, and may be one byte shorter */
        if (!is_old && length + AT_LENGTH + 4 < HEAD_SIZE) {
            *is_damaged = 1;
            return 0;
        }
        int32_t epoch = is_old ? NO_EPOCH : (int32_t)big_endian(all.at + AT_EPOCH, 4);
        int32_t delta = is_old ? 0 : (int32_t)big_endian(all.at + AT_LAST_OFFSET_DELTA, 4);
        if (delta < 0 || base_offset > LAST_BASE_OFFSET) {
            *is_damaged = 1;
            return 0;
        }
        if ((PyList_GET_SIZE(epochs) == 0 || epoch != last_epoch) && add_epoch(epochs, base_offset, epoch) < 0) {
            return -1;
        }
        last_epoch = epoch;
        if (base_offset + delta + 1 > *end) {
            *end = base_offset + delta + 1;
        }
        all.at += length + AT_LENGTH + 4;
    }
    return 0;
}

PyObject *
extent(PyObject *module, PyObject *args)
{
    Py_buffer data;
    long long from_offset;
    if (!PyArg_ParseTuple(args, "y*L:extent", &data, &from_offset)) {
        return NULL;
    }
    int64_t end = from_offset;
    int is_damaged = 0;
    PyObject *epochs = PyList_New(0);
    Bytes all = {data.buf, (const uint8_t *)data.buf + data.len};
    int failed = epochs == NULL || walk(all, &end, &is_damaged, epochs) < 0;
    PyBuffer_Release(&data);
    if (failed) {
        Py_XDECREF(epochs);
        return NULL;
    }
    PyObject *end_object = is_damaged ? Py_NewRef(Py_None) : PyLong_FromLongLong(end);
    PyObject *runs = PyList_AsTuple(epochs);
    Py_DECREF(epochs);
    if (end_object == NULL || runs == NULL) {
        Py_XDECREF(end_object);
        Py_XDECREF(runs);
        return NULL;
    }
    return Py_BuildValue("(NN)", end_object, runs);
}
