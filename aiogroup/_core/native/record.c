/* Record: as pure.Record. The garbage collector does not track it while key and value are bytes, as with a tuple of
 * atoms: millions of short-lived records must not cause its full passes, which hold up the loop, sooner. */

#include "native.h"
#include <stddef.h>
#include <structmember.h>

/* Freed records are reused: every allocation counts towards the collector's next pass. A spare record keeps
 * its reference to the type. */
static Record *
allocate(State *state)
{
    if (state->spare_count > 0) {
        Record *self = state->spare[--state->spare_count];
        _Py_NewReference((PyObject *)self);
        return self;
    }
    Record *self = PyObject_GC_New(Record, state->record_type);
    if (self != NULL) {
        self->state = state;
    }
    return self;
}

static void
release(Record *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

int
records_traverse(State *state, visitproc visit, void *arg)
{
    for (int i = 0; i < state->spare_count; i++) {
        Py_VISIT(Py_TYPE(state->spare[i]));
    }
    return 0;
}

void
records_let_go(State *state)
{
    while (state->spare_count > 0) {
        release(state->spare[--state->spare_count]);
    }
}

PyObject *
record_new(State *state, PyObject *origin, int64_t offset, int64_t timestamp, PyObject *key, PyObject *value,
           PyObject *headers)
{
    Record *self = allocate(state);
    if (self == NULL) {
        Py_DECREF(key);
        Py_DECREF(value);
        Py_XDECREF(headers);
        return NULL;
    }
    self->origin = Py_NewRef(origin);
    self->key = key;
    self->value = value;
    self->headers = headers;
    self->offset = offset;
    self->timestamp = timestamp;
    self->is_tracked = 0;
    return (PyObject *)self;
}

static void
track(Record *self)
{
    if (!self->is_tracked) {
        self->is_tracked = 1;
        PyObject_GC_Track(self);
    }
}

static int
set_lateness(Record *self, PyObject *lateness, void *unused);

static PyObject *
record_construct(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"tp",    "offset",  "timestamp",   "timestamp_type", "key",
                            "value", "headers", "acknowledge", "lane",           "lateness_ms", NULL};
    PyObject *tp, *kind, *key, *value, *headers, *acknowledge = Py_None, *lane = NULL, *lateness = NULL;
    long long offset, timestamp;
    State *state = state_of(type);
    if (state == NULL) {
        return NULL;
    }
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!LLOOOO|OUO:Record", names, &PyTuple_Type, &tp, &offset,
                                     &timestamp, &kind, &key, &value, &headers, &acknowledge, &lane, &lateness)) {
        return NULL;
    }
    if (PyTuple_GET_SIZE(tp) != 2) {
        PyErr_SetString(PyExc_TypeError, "tp must be a TopicPartition");
        return NULL;
    }
    headers = PySequence_Tuple(headers);
    if (headers == NULL) {
        return NULL;
    }
    PyObject *origin = lane == NULL ? Py_BuildValue("(OOsO)", tp, kind, "live", acknowledge)
                                    : Py_BuildValue("(OOOO)", tp, kind, lane, acknowledge);
    if (origin == NULL) {
        Py_DECREF(headers);
        return NULL;
    }
    PyObject *self = record_new(state, origin, offset, timestamp, Py_NewRef(key), Py_NewRef(value), headers);
    Py_DECREF(origin);
    if (self != NULL) {
        track((Record *)self); /* constructed by Python code: it may hold anything */
        if (lateness != NULL && set_lateness((Record *)self, lateness, NULL) < 0) {
            Py_CLEAR(self);
        }
    }
    return self;
}

static int
record_traverse(Record *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->origin);
    Py_VISIT(self->key);
    Py_VISIT(self->value);
    Py_VISIT(self->headers);
    return 0;
}

static int
record_clear(Record *self)
{
    /* The getters rely on an origin; a record in a cycle refers to it by key or value. */
    Py_SETREF(self->key, Py_NewRef(Py_None));
    Py_SETREF(self->value, Py_NewRef(Py_None));
    return 0;
}

static void
let_go_of_parts(Record *self)
{
    Py_DECREF(self->origin);
    Py_DECREF(self->key);
    Py_DECREF(self->value);
    Py_XDECREF(self->headers);
}

/* An untracked record keeps its type alive, and the type keeps the module with its state alive. With a tracked record
 * all three may be collected at once: the type tells whether the module still exists. */
static void
record_dealloc(Record *self)
{
    if (!self->is_tracked) {
        let_go_of_parts(self);
        State *state = self->state;
        if (state->spare_count < SPARE_RECORDS) {
            state->spare[state->spare_count++] = self;
        }
        else {
            release(self);
        }
        return;
    }
    PyObject_GC_UnTrack(self);
    Py_TRASHCAN_BEGIN(self, record_dealloc) /* a chain of records must not exhaust the stack */
    let_go_of_parts(self);
    PyObject *module = ((PyHeapTypeObject *)Py_TYPE(self))->ht_module;
    State *state = module == NULL ? NULL : state_of_module(module);
    if (state != NULL && state->record_type != NULL && state->spare_count < SPARE_RECORDS) {
        state->spare[state->spare_count++] = self;
    }
    else {
        release(self);
    }
    Py_TRASHCAN_END
}

/* Attributes. */

static PyObject *
get_from_origin(Record *self, void *index)
{
    return Py_NewRef(PyTuple_GET_ITEM(self->origin, (Py_ssize_t)(intptr_t)index));
}

static PyObject *
get_from_tp(Record *self, void *index)
{
    return Py_NewRef(PyTuple_GET_ITEM(PyTuple_GET_ITEM(self->origin, ORIGIN_TP), (Py_ssize_t)(intptr_t)index));
}

static PyObject *
get_lateness(Record *self, void *unused)
{
    int is_late = PyTuple_GET_SIZE(self->origin) > ORIGIN_LATENESS;
    return is_late ? Py_NewRef(PyTuple_GET_ITEM(self->origin, ORIGIN_LATENESS)) : PyLong_FromLong(0);
}

static int
set_lateness(Record *self, PyObject *lateness, void *unused)
{
    if (lateness == NULL || !PyLong_CheckExact(lateness)) {
        PyErr_SetString(PyExc_TypeError, "a record's lateness is a whole number of milliseconds");
        return -1;
    }
    PyObject *origin = PyTuple_New(ORIGIN_LATENESS + 1);
    if (origin == NULL) {
        return -1;
    }
    for (int part = 0; part < ORIGIN_LATENESS; part++) {
        PyTuple_SET_ITEM(origin, part, Py_NewRef(PyTuple_GET_ITEM(self->origin, part)));
    }
    PyTuple_SET_ITEM(origin, ORIGIN_LATENESS, Py_NewRef(lateness));
    Py_SETREF(self->origin, origin);
    return 0;
}

static PyObject *
get_headers(Record *self, void *unused)
{
    return self->headers == NULL ? PyTuple_New(0) : Py_NewRef(self->headers);
}

/* Key and value are plain members, which the interpreter reads without a call. They are set only here: a value that is
 * set may be part of a cycle, and is never NULL. */
static int
record_setattr(PyObject *self, PyObject *name, PyObject *object)
{
    Record *record = (Record *)self;
    int is_value = PyUnicode_CompareWithASCIIString(name, "value") == 0;
    if (!is_value && PyUnicode_CompareWithASCIIString(name, "key") != 0) {
        return PyObject_GenericSetAttr(self, name, object);
    }
    if (object == NULL) {
        PyErr_SetString(PyExc_AttributeError, "a record's key and value can be replaced, not deleted");
        return -1;
    }
    if (is_value) {
        Py_SETREF(record->value, Py_NewRef(object));
    }
    else {
        Py_SETREF(record->key, Py_NewRef(object));
    }
    if (PyObject_IS_GC(object)) {
        track(record);
    }
    return 0;
}

static PyObject *
get_size(Record *self, void *offset)
{
    PyObject *object = *(PyObject **)((char *)self + (intptr_t)offset);
    return PyLong_FromSsize_t(PyBytes_Check(object) ? PyBytes_GET_SIZE(object) : -1);
}

#define AT(name) ((void *)offsetof(Record, name))

static PyGetSetDef record_getset[] = {
    {"tp", (getter)get_from_origin, NULL, NULL, (void *)ORIGIN_TP},
    {"topic_partition", (getter)get_from_origin, NULL, NULL, (void *)ORIGIN_TP},
    {"timestamp_type", (getter)get_from_origin, NULL, NULL, (void *)ORIGIN_TIMESTAMP_TYPE},
    {"lane", (getter)get_from_origin, NULL, NULL, (void *)ORIGIN_LANE},
    {"topic", (getter)get_from_tp, NULL, NULL, (void *)0},
    {"partition", (getter)get_from_tp, NULL, NULL, (void *)1},
    {"lateness_ms", (getter)get_lateness, (setter)set_lateness, NULL, NULL},
    {"headers", (getter)get_headers, NULL, NULL, NULL},
    {"serialized_key_size", (getter)get_size, NULL, NULL, AT(key)},
    {"serialized_value_size", (getter)get_size, NULL, NULL, AT(value)},
    {NULL},
};

static PyMemberDef record_members[] = {
    {"key", T_OBJECT_EX, offsetof(Record, key), READONLY, NULL},
    {"value", T_OBJECT_EX, offsetof(Record, value), READONLY, NULL},
    {"offset", T_LONGLONG, offsetof(Record, offset), READONLY, NULL},
    {"timestamp", T_LONGLONG, offsetof(Record, timestamp), READONLY, NULL},
    {NULL},
};

/* Methods. */

static PyObject *
record_ack(Record *self, PyObject *unused)
{
    PyObject *acknowledge = PyTuple_GET_ITEM(self->origin, ORIGIN_ACKNOWLEDGE);
    if (acknowledge != Py_None) {
        PyObject *done = PyObject_CallOneArg(acknowledge, (PyObject *)self);
        if (done == NULL) {
            return NULL;
        }
        Py_DECREF(done);
    }
    Py_RETURN_NONE;
}

static PyObject *
values_of(Record *self)
{
    PyObject *headers = get_headers(self, NULL);
    if (headers == NULL) {
        return NULL;
    }
    return Py_BuildValue("(OLLOOON)", PyTuple_GET_ITEM(self->origin, ORIGIN_TP), self->offset, self->timestamp,
                         PyTuple_GET_ITEM(self->origin, ORIGIN_TIMESTAMP_TYPE), self->key, self->value, headers);
}

static PyObject *
record_reduce(Record *self, PyObject *unused)
{
    PyObject *lane = PyTuple_GET_ITEM(self->origin, ORIGIN_LANE);
    int is_live = PyUnicode_Check(lane) && PyUnicode_CompareWithASCIIString(lane, "live") == 0;
    int is_late = PyTuple_GET_SIZE(self->origin) > ORIGIN_LATENESS;
    PyObject *values = values_of(self);
    if (values != NULL && (!is_live || is_late)) { /* most records are neither, and their pickles are shorter */
        PyObject *lateness = get_lateness(self, NULL);
        PyObject *where = lateness == NULL ? NULL : Py_BuildValue("(OON)", Py_None, lane, lateness);
        Py_SETREF(values, where == NULL ? NULL : PySequence_Concat(values, where));
        Py_XDECREF(where);
    }
    return values == NULL ? NULL : Py_BuildValue("(ON)", Py_TYPE(self), values);
}

static PyObject *
record_compare(PyObject *self, PyObject *other, int operation)
{
    if (!Py_IS_TYPE(other, Py_TYPE(self)) || (operation != Py_EQ && operation != Py_NE)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    PyObject *mine = values_of((Record *)self), *theirs = values_of((Record *)other), *answer = NULL;
    if (mine != NULL && theirs != NULL) {
        answer = PyObject_RichCompare(mine, theirs, operation);
    }
    Py_XDECREF(mine);
    Py_XDECREF(theirs);
    return answer;
}

static Py_hash_t
record_hash(Record *self)
{
    PyObject *place = Py_BuildValue("(OL)", PyTuple_GET_ITEM(self->origin, ORIGIN_TP), self->offset);
    if (place == NULL) {
        return -1;
    }
    Py_hash_t hash = PyObject_Hash(place);
    Py_DECREF(place);
    return hash;
}

static PyObject *
record_repr(Record *self)
{
    PyObject *tp = PyTuple_GET_ITEM(self->origin, ORIGIN_TP);
    return PyUnicode_FromFormat("Record(topic=%R, partition=%S, offset=%lld, timestamp=%lld, key=%R, value=%R)",
                                PyTuple_GET_ITEM(tp, 0), PyTuple_GET_ITEM(tp, 1), self->offset, self->timestamp,
                                self->key, self->value);
}

PyDoc_STRVAR(ack_doc, "ack($self, /)\n--\n\n"
                      "Mark the record as processed: its offset may be committed once all records before it are "
                      "processed, too.\n\n"
                      "May be called from any task or thread, in any order, any number of times; from another thread "
                      "than that of the\nconsumer's loop it takes effect in the loop's next turn. It has no effect after "
                      "the partition was revoked, or\non a record that belongs to no consumer (constructed or "
                      "unpickled).");

static PyMethodDef record_methods[] = {
    {"ack", (PyCFunction)record_ack, METH_NOARGS, ack_doc},
    {"__reduce__", (PyCFunction)record_reduce, METH_NOARGS, NULL},
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, NULL}, /* Record[str, Order], for type checkers */
    {NULL},
};

/* As pure.read_times. */
PyObject *
read_times(PyObject *module, PyObject *args)
{
    PyObject *records, *times;
    PyTypeObject *record_type = state_of_module(module)->record_type;
    if (!PyArg_ParseTuple(args, "O!O!:read_times", &PyList_Type, &records, &PyList_Type, &times)) {
        return NULL;
    }
    for (Py_ssize_t index = PyList_GET_SIZE(times); index < PyList_GET_SIZE(records); index++) {
        Record *record = (Record *)PyList_GET_ITEM(records, index);
        if (!Py_IS_TYPE(record, record_type)) {
            PyErr_SetString(PyExc_TypeError, "read_times reads records");
            return NULL;
        }
        if (record->timestamp < 0) {
            Py_RETURN_FALSE;
        }
        PyObject *time = PyLong_FromLongLong(record->timestamp);
        int failed = time == NULL || PyList_Append(times, time) < 0;
        Py_XDECREF(time);
        if (failed) {
            return NULL;
        }
    }
    Py_RETURN_TRUE;
}

static PyType_Slot record_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("One record, with the attributes of aiokafka's `ConsumerRecord` but `checksum`.\n\n"
                                  "help('aiogroup._core.native.pure.Record') says what each of them is.")},
    {Py_tp_new, record_construct},
    {Py_tp_dealloc, record_dealloc},
    {Py_tp_traverse, record_traverse},
    {Py_tp_clear, record_clear},
    {Py_tp_setattro, record_setattr},
    {Py_tp_getset, record_getset},
    {Py_tp_members, record_members},
    {Py_tp_methods, record_methods},
    {Py_tp_richcompare, record_compare},
    {Py_tp_hash, record_hash},
    {Py_tp_repr, record_repr},
    {0, NULL},
};

PyType_Spec record_spec = {
    .name = "aiogroup.records.Record",
    .basicsize = sizeof(Record),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = record_slots,
};
