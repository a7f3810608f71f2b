/* As pure.columns. Records are walked once for their sizes and once for their bytes. */

#include "native.h"

/* The buffers of one column of bytes. */
typedef struct {
    PyObject *valid; /* a bit for each record, or NULL: not needed until there is a null */
    PyObject *ends;
    PyObject *data;
    Py_ssize_t size;
    Py_ssize_t null_count;
} Column;

static inline PyObject *
value_of(const Record *record, int is_key)
{
    return is_key ? record->key : record->value;
}

/* No number is asked of an object that Python code could answer for: the list must stay as it is measured. */
static int
add_kind(PyObject *kinds, Py_ssize_t at, PyObject *kind)
{
    if (!PyLong_Check(kind)) {
        PyErr_SetString(PyExc_TypeError, "a record's timestamp type is a whole number");
        return 0;
    }
    long number = PyLong_AsLong(kind);
    if (number < INT32_MIN || number > INT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "a record's timestamp type is no int32");
        return 0;
    }
    ((int32_t *)PyBytes_AS_STRING(kinds))[at] = (int32_t)number;
    return number != -1 || !PyErr_Occurred();
}

static int
measure(Column *column, PyObject *value)
{
    if (value == Py_None) {
        column->null_count++;
        return 1;
    }
    if (!PyBytes_Check(value)) {
        PyErr_SetString(PyExc_TypeError, "columns takes records whose key and value are bytes");
        return 0;
    }
    column->size += PyBytes_GET_SIZE(value);
    if (column->size > INT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "keys or values of one batch are longer than 2 GiB: take fewer records");
        return 0;
    }
    return 1;
}

static int
fill(Column *column, PyObject *records, int is_key)
{
    Py_ssize_t count = PyList_GET_SIZE(records);
    column->ends = PyBytes_FromStringAndSize(NULL, (count + 1) * (Py_ssize_t)sizeof(int32_t));
    column->data = PyBytes_FromStringAndSize(NULL, column->size);
    column->valid = column->null_count == 0 ? Py_NewRef(Py_None) : PyBytes_FromStringAndSize(NULL, (count + 7) / 8);
    if (column->ends == NULL || column->data == NULL || column->valid == NULL) {
        return 0;
    }
    int32_t *ends = (int32_t *)PyBytes_AS_STRING(column->ends), end = 0;
    char *data = PyBytes_AS_STRING(column->data);
    uint8_t *valid = column->null_count == 0 ? NULL : (uint8_t *)PyBytes_AS_STRING(column->valid);
    if (valid != NULL) {
        memset(valid, 0, (size_t)(count + 7) / 8);
    }
    ends[0] = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = value_of((Record *)PyList_GET_ITEM(records, i), is_key);
        if (value != Py_None) {
            Py_ssize_t size = PyBytes_GET_SIZE(value);
            memcpy(data + end, PyBytes_AS_STRING(value), (size_t)size);
            end += (int32_t)size;
            if (valid != NULL) {
                valid[i / 8] |= (uint8_t)(1 << i % 8);
            }
        }
        ends[i + 1] = end;
    }
    return 1;
}

static void
let_go(Column *column)
{
    Py_XDECREF(column->valid);
    Py_XDECREF(column->ends);
    Py_XDECREF(column->data);
}

PyObject *
columns(PyObject *module, PyObject *records)
{
    State *state = usable(state_of_module(module));
    if (state == NULL) {
        return NULL;
    }
    if (!PyList_Check(records)) {
        PyErr_SetString(PyExc_TypeError, "columns takes a list of records");
        return NULL;
    }
    Py_ssize_t count = PyList_GET_SIZE(records);
    PyObject *offsets = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(int64_t));
    PyObject *timestamps = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(int64_t));
    PyObject *kinds = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(int32_t));
    PyObject *made = NULL;
    Column keys = {0}, values = {0};
    int has_headers = 0, is_fit = offsets != NULL && timestamps != NULL && kinds != NULL;
    for (Py_ssize_t i = 0; is_fit && i < count; i++) {
        Record *record = (Record *)PyList_GET_ITEM(records, i);
        if (!Py_IS_TYPE(record, state->record_type)) {
            PyErr_SetString(PyExc_TypeError, "columns takes a list of records");
            is_fit = 0;
            break;
        }
        ((int64_t *)PyBytes_AS_STRING(offsets))[i] = record->offset;
        ((int64_t *)PyBytes_AS_STRING(timestamps))[i] = record->timestamp;
        has_headers |= record->headers != NULL && PyTuple_GET_SIZE(record->headers) != 0;
        is_fit = add_kind(kinds, i, PyTuple_GET_ITEM(record->origin, ORIGIN_TIMESTAMP_TYPE)) &&
                 measure(&keys, record->key) && measure(&values, record->value);
    }
    /* Tuples are made at the end: the collector may run when they are, and with it code that changes the records. */
    if (is_fit && fill(&keys, records, 1) && fill(&values, records, 0)) {
        made = Py_BuildValue("(OOOO(nOOO)(nOOO))", offsets, timestamps, kinds, has_headers ? Py_True : Py_False,
                             keys.null_count, keys.valid, keys.ends, keys.data, values.null_count, values.valid,
                             values.ends, values.data);
    }
    let_go(&keys);
    let_go(&values);
    Py_XDECREF(offsets);
    Py_XDECREF(timestamps);
    Py_XDECREF(kinds);
    return made;
}
