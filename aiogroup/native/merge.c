/* merge: as pure.merge. A heap of the sources by (key of the next record, slot). */

#include "native.h"

typedef struct {
    PyObject *records;
    PyObject *keys;
    Py_ssize_t index;
    int64_t key; /* of the record at `index` */
} Source;

typedef struct {
    Source *sources;
    int *heap;
    int count;
} Heads;

static int
is_before(const Heads *heads, int one, int other)
{
    int64_t mine = heads->sources[one].key, theirs = heads->sources[other].key;
    return mine < theirs || (mine == theirs && one < other);
}

static void
sift_down(Heads *heads, int at)
{
    int slot = heads->heap[at];
    for (;;) {
        int child = 2 * at + 1;
        if (child >= heads->count) {
            break;
        }
        if (child + 1 < heads->count && is_before(heads, heads->heap[child + 1], heads->heap[child])) {
            child++;
        }
        if (!is_before(heads, heads->heap[child], slot)) {
            break;
        }
        heads->heap[at] = heads->heap[child];
        at = child;
    }
    heads->heap[at] = slot;
}

/* The key of the record at `index`; 0 with an error. */
static int
read_key(Source *source)
{
    if (source->index < 0 || source->index >= PyList_GET_SIZE(source->keys) ||
        source->index >= PyList_GET_SIZE(source->records)) {
        PyErr_SetString(PyExc_ValueError, "a source has no record at its index");
        return 0;
    }
    source->key = PyLong_AsLongLong(PyList_GET_ITEM(source->keys, source->index));
    return source->key != -1 || !PyErr_Occurred();
}

static int
open_source(Source *source, PyObject *given)
{
    if (!PyList_Check(given) || PyList_GET_SIZE(given) != 3 || !PyList_Check(PyList_GET_ITEM(given, 0)) ||
        !PyList_Check(PyList_GET_ITEM(given, 1))) {
        PyErr_SetString(PyExc_TypeError, "a source is [records, keys, index]");
        return 0;
    }
    source->records = PyList_GET_ITEM(given, 0);
    source->keys = PyList_GET_ITEM(given, 1);
    source->index = PyLong_AsSsize_t(PyList_GET_ITEM(given, 2));
    if (source->index == -1 && PyErr_Occurred()) {
        return 0;
    }
    return read_key(source);
}

static int
append_slot(PyObject *order, int slot)
{
    PyObject *number = PyLong_FromLong(slot);
    int failed = number == NULL || PyList_Append(order, number) < 0;
    Py_XDECREF(number);
    return !failed;
}

/* Up to `limit` records; the slot that was used up, -1 when none was, -2 with an error. */
static int
take_until_used_up(Heads *heads, PyObject *records, PyObject *order, PyObject *times, Py_ssize_t limit)
{
    while (limit-- > 0) {
        int slot = heads->heap[0];
        Source *source = &heads->sources[slot];
        if (PyList_Append(records, PyList_GET_ITEM(source->records, source->index)) < 0 ||
            PyList_Append(times, PyList_GET_ITEM(source->keys, source->index)) < 0 || !append_slot(order, slot)) {
            return -2;
        }
        source->index++;
        if (source->index == PyList_GET_SIZE(source->keys)) {
            return slot;
        }
        if (!read_key(source)) {
            return -2;
        }
        sift_down(heads, 0);
    }
    return -1;
}

/* Say in the sources how far they were read. */
static int
write_back(Heads *heads, PyObject *given)
{
    for (int slot = 0; slot < heads->count; slot++) {
        PyObject *index = PyLong_FromSsize_t(heads->sources[slot].index);
        if (index == NULL || PyList_SetItem(PyList_GET_ITEM(given, slot), 2, index) < 0) {
            return 0;
        }
    }
    return 1;
}

PyObject *
merge(PyObject *module, PyObject *args)
{
    PyObject *given, *records, *order, *times;
    Py_ssize_t limit;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!O!O!n:merge", &PyList_Type, &given, &PyList_Type, &records, &PyList_Type, &order,
                          &PyList_Type, &times, &limit)) {
        return NULL;
    }
    Py_ssize_t count = PyList_GET_SIZE(given);
    if (count < 1 || count > INT32_MAX / 2 || limit < 1) {
        PyErr_SetString(PyExc_ValueError, "merge needs a source and a limit of at least 1");
        return NULL;
    }
    Heads heads = {PyMem_New(Source, count), PyMem_New(int, count), (int)count};
    int used_up = -2;
    if (heads.sources == NULL || heads.heap == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (int slot = 0; slot < heads.count; slot++) {
        if (!open_source(&heads.sources[slot], PyList_GET_ITEM(given, slot))) {
            goto done;
        }
        heads.heap[slot] = slot;
    }
    for (int at = heads.count / 2 - 1; at >= 0; at--) {
        sift_down(&heads, at);
    }
    used_up = take_until_used_up(&heads, records, order, times, limit);
    if (used_up > -2 && !write_back(&heads, given)) {
        used_up = -2;
    }
done:
    PyMem_Free(heads.sources);
    PyMem_Free(heads.heap);
    return used_up == -2 ? NULL : PyLong_FromLong(used_up);
}
