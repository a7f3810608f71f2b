/* Heads: as pure.Heads. A heap of the sources that have a record left, by (its key, slot). */

#include "native.h"

typedef struct {
    PyObject *given; /* the caller's [records, keys, index] */
    PyObject *records;
    PyObject *keys;
    Py_ssize_t index;
    int64_t key; /* of the record at `index` */
    int is_used_up;
} Source;

typedef struct {
    PyObject_HEAD
    Source *sources;
    int *heap;
    int source_count;
    int count; /* of the heap */
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

static void
sift_up(Heads *heads, int at)
{
    int slot = heads->heap[at];
    while (at > 0 && is_before(heads, slot, heads->heap[(at - 1) / 2])) {
        heads->heap[at] = heads->heap[(at - 1) / 2];
        at = (at - 1) / 2;
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
read_source(Source *source)
{
    PyObject *given = source->given;
    if (PyList_GET_SIZE(given) != 3 || !PyList_Check(PyList_GET_ITEM(given, 0)) ||
        !PyList_Check(PyList_GET_ITEM(given, 1))) {
        PyErr_SetString(PyExc_TypeError, "a source is [records, keys, index]");
        return 0;
    }
    Py_XSETREF(source->records, Py_NewRef(PyList_GET_ITEM(given, 0)));
    Py_XSETREF(source->keys, Py_NewRef(PyList_GET_ITEM(given, 1)));
    source->index = PyLong_AsSsize_t(PyList_GET_ITEM(given, 2));
    return (source->index != -1 || !PyErr_Occurred()) && read_key(source);
}

static int
append_slot(PyObject *order, int slot)
{
    PyObject *number = PyLong_FromLong(slot);
    int failed = number == NULL || PyList_Append(order, number) < 0;
    Py_XDECREF(number);
    return !failed;
}

/* Remove the heap's first source, which is used up; 0 with an error. */
static int
use_up(Heads *self, Source *source)
{
    source->is_used_up = 1;
    self->heap[0] = self->heap[--self->count];
    if (self->count > 0) {
        sift_down(self, 0);
    }
    PyObject *index = PyLong_FromSsize_t(source->index);
    return index != NULL && PyList_SetItem(source->given, 2, index) == 0;
}

static PyObject *
heads_take(Heads *self, PyObject *args)
{
    PyObject *records, *order, *times;
    Py_ssize_t limit;
    if (!PyArg_ParseTuple(args, "O!O!O!n:take", &PyList_Type, &records, &PyList_Type, &order, &PyList_Type, &times,
                          &limit)) {
        return NULL;
    }
    if (self->count < 1 || limit < 1) {
        PyErr_SetString(PyExc_ValueError, "take needs a source with records and a limit of at least 1");
        return NULL;
    }
    while (limit-- > 0) {
        int slot = self->heap[0];
        Source *source = &self->sources[slot];
        if (source->index >= PyList_GET_SIZE(source->keys) || source->index >= PyList_GET_SIZE(source->records)) {
            PyErr_SetString(PyExc_ValueError, "a source has no record at its index");
            return NULL;
        }
        if (PyList_Append(records, PyList_GET_ITEM(source->records, source->index)) < 0 ||
            PyList_Append(times, PyList_GET_ITEM(source->keys, source->index)) < 0 || !append_slot(order, slot)) {
            return NULL;
        }
        source->index++;
        if (source->index == PyList_GET_SIZE(source->keys)) {
            return use_up(self, source) ? PyLong_FromLong(slot) : NULL;
        }
        if (!read_key(source)) {
            return NULL;
        }
        sift_down(self, 0);
    }
    return PyLong_FromLong(-1);
}

static PyObject *
heads_refill(Heads *self, PyObject *given)
{
    Py_ssize_t slot = PyLong_AsSsize_t(given);
    if (slot == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (slot < 0 || slot >= self->source_count || !self->sources[slot].is_used_up) {
        PyErr_SetString(PyExc_ValueError, "no source with this number is used up");
        return NULL;
    }
    if (!read_source(&self->sources[slot])) {
        return NULL;
    }
    self->sources[slot].is_used_up = 0;
    self->heap[self->count++] = (int)slot;
    sift_up(self, self->count - 1);
    Py_RETURN_NONE;
}

static int
heads_clear(Heads *self)
{
    self->count = 0;
    for (int slot = 0; slot < self->source_count; slot++) {
        Py_CLEAR(self->sources[slot].given);
        Py_CLEAR(self->sources[slot].records);
        Py_CLEAR(self->sources[slot].keys);
    }
    return 0;
}

static PyObject *
heads_construct(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *given;
    if (kwargs != NULL && PyDict_GET_SIZE(kwargs) > 0) {
        PyErr_SetString(PyExc_TypeError, "Heads takes the sources alone");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "O!:Heads", &PyList_Type, &given)) {
        return NULL;
    }
    Py_ssize_t count = PyList_GET_SIZE(given);
    if (count > INT32_MAX / 2) {
        PyErr_SetString(PyExc_ValueError, "too many sources");
        return NULL;
    }
    Heads *self = (Heads *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->sources = PyMem_Calloc(count + 1, sizeof(Source));
    self->heap = PyMem_Calloc(count + 1, sizeof(int));
    if (self->sources == NULL || self->heap == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t slot = 0; slot < count; slot++) {
        PyObject *source = PyList_GET_ITEM(given, slot);
        if (!PyList_Check(source)) {
            PyErr_SetString(PyExc_TypeError, "a source is [records, keys, index]");
            Py_DECREF(self);
            return NULL;
        }
        self->sources[slot].given = Py_NewRef(source);
        self->heap[slot] = (int)slot;
        self->source_count = (int)slot + 1;
        if (!read_source(&self->sources[slot])) {
            Py_DECREF(self);
            return NULL;
        }
    }
    self->count = (int)count;
    for (int at = self->count / 2 - 1; at >= 0; at--) {
        sift_down(self, at);
    }
    return (PyObject *)self;
}

static int
heads_traverse(Heads *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    for (int slot = 0; slot < self->source_count; slot++) {
        Py_VISIT(self->sources[slot].given);
        Py_VISIT(self->sources[slot].records);
        Py_VISIT(self->sources[slot].keys);
    }
    return 0;
}

static void
heads_dealloc(Heads *self)
{
    PyObject_GC_UnTrack(self);
    heads_clear(self);
    PyMem_Free(self->sources);
    PyMem_Free(self->heap);
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef heads_methods[] = {
    {"take", (PyCFunction)heads_take, METH_VARARGS, NULL},
    {"refill", (PyCFunction)heads_refill, METH_O, NULL},
    {NULL},
};

static PyType_Slot heads_slots[] = {
    {Py_tp_new, heads_construct},
    {Py_tp_dealloc, heads_dealloc},
    {Py_tp_traverse, heads_traverse},
    {Py_tp_clear, heads_clear},
    {Py_tp_methods, heads_methods},
    {0, NULL},
};

PyType_Spec heads_spec = {
    .name = "aiogroup._core.native._native.Heads",
    .basicsize = sizeof(Heads),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = heads_slots,
};
