/* Cursor: the iterator of `async for`. It gives an available record without a coroutine. Only when the slice or
 * the turn is over it calls `wait` for the next one. */

#include "native.h"
#include <stddef.h>
#include <structmember.h>
#include <time.h>

typedef struct {
    PyObject_HEAD
    PyObject *wait;    /* () -> coroutine of the next record */
    PyObject *records; /* a list, NULL when closed */
    PyObject *spare;   /* a Next that nobody else holds, to be reused */
    PyObject *opener;  /* the context that `open` was called in, NULL when closed */
    char is_shared;    /* any task that steps it gets the next record */
    Py_ssize_t index;
    int64_t turn_ends_ns;
} Cursor;

/* The result of `__anext__`. It takes a record only when awaited, so dropping or cancelling it loses nothing. */
typedef struct {
    PyObject_HEAD
    Cursor *cursor; /* NULL once it has given its record */
    PyObject *waiting; /* the coroutine of `wait`, once the cursor was empty */
} Next;

static int64_t
monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int
has_record(Cursor *self)
{
    return self->records != NULL && self->index < PyList_GET_SIZE(self->records);
}

/* The next record of the turn; NULL, without an error, if there is none. */
static PyObject *
take(Cursor *self)
{
    if (!has_record(self) || monotonic_ns() >= self->turn_ends_ns) {
        return NULL;
    }
    return Py_NewRef(PyList_GET_ITEM(self->records, self->index++));
}

static PyObject *
call_wait(Cursor *self)
{
    PyObject *wait = self->wait != NULL ? Py_NewRef(self->wait) : Py_NewRef(Py_None); /* `del cursor.wait` is possible */
    PyObject *coroutine = PyObject_CallNoArgs(wait);
    Py_DECREF(wait);
    return coroutine;
}

/* Next. */

static PySendResult
next_send(Next *self, PyObject *sent, PyObject **result)
{
    *result = NULL;
    if (self->cursor == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "cannot reuse an awaited __anext__()");
        return PYGEN_ERROR;
    }
    if (self->waiting == NULL) {
        *result = take(self->cursor);
        if (*result != NULL) {
            Py_CLEAR(self->cursor);
            return PYGEN_RETURN;
        }
        PyObject *waiting = call_wait(self->cursor);
        if (waiting == NULL) {
            return PYGEN_ERROR;
        }
        Py_XSETREF(self->waiting, waiting); /* `wait` itself may have stepped this one */
    }
    PySendResult outcome = PyIter_Send(self->waiting, sent, result);
    if (outcome != PYGEN_NEXT) {
        Py_CLEAR(self->cursor);
    }
    return outcome;
}

static PyObject *
as_step(PySendResult outcome, PyObject *result)
{
    if (outcome == PYGEN_RETURN) {
        PyObject *stop = PyObject_CallOneArg(PyExc_StopIteration, result);
        if (stop != NULL) {
            PyErr_SetObject(PyExc_StopIteration, stop);
            Py_DECREF(stop);
        }
        Py_CLEAR(result);
    }
    return result;
}

static PyObject *
next_step(Next *self)
{
    PyObject *result;
    PySendResult outcome = next_send(self, Py_None, &result);
    return as_step(outcome, result);
}

static PyObject *
next_send_method(Next *self, PyObject *sent)
{
    PyObject *result;
    PySendResult outcome = next_send(self, sent, &result);
    return as_step(outcome, result);
}

static PyObject *
next_throw(Next *self, PyObject *args)
{
    if (self->waiting != NULL) {
        PyObject *method = PyObject_GetAttrString(self->waiting, "throw");
        if (method == NULL) {
            return NULL;
        }
        PyObject *result = PyObject_CallObject(method, args);
        Py_DECREF(method);
        return result;
    }
    PyObject *error, *value = NULL, *traceback = NULL;
    if (!PyArg_ParseTuple(args, "O|OO:throw", &error, &value, &traceback)) {
        return NULL;
    }
    Py_CLEAR(self->cursor);
    if (PyExceptionInstance_Check(error)) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    }
    else if (PyExceptionClass_Check(error)) {
        PyErr_SetObject(error, value);
    }
    else {
        PyErr_Format(PyExc_TypeError, "%R is no exception", error);
    }
    return NULL;
}

static PyObject *
next_close(Next *self, PyObject *unused)
{
    Py_CLEAR(self->cursor);
    if (self->waiting == NULL) {
        Py_RETURN_NONE;
    }
    return PyObject_CallMethod(self->waiting, "close", NULL);
}

static int
next_traverse(Next *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->cursor);
    Py_VISIT(self->waiting);
    return 0;
}

static int
next_clear(Next *self)
{
    Py_CLEAR(self->cursor);
    Py_CLEAR(self->waiting);
    return 0;
}

static void
next_dealloc(Next *self)
{
    PyObject_GC_UnTrack(self);
    next_clear(self);
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyMethodDef next_methods[] = {
    {"send", (PyCFunction)next_send_method, METH_O, NULL},
    {"throw", (PyCFunction)next_throw, METH_VARARGS, NULL},
    {"close", (PyCFunction)next_close, METH_NOARGS, NULL},
    {NULL},
};

static PyType_Slot next_slots[] = {
    {Py_tp_dealloc, next_dealloc},
    {Py_tp_traverse, next_traverse},
    {Py_tp_clear, next_clear},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, next_step},
    {Py_tp_methods, next_methods},
    {Py_am_await, PyObject_SelfIter},
    {Py_am_send, next_send},
    {0, NULL},
};

PyType_Spec next_spec = {
    .name = "aiogroup._core.native._native.Next",
    .basicsize = sizeof(Next),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = next_slots,
};

/* Cursor. */

/* Each task has a context of its own, so comparing contexts distinguishes tasks at the cost of reading a pointer. Tasks
 * created with the same context are distinguished when the slice or the turn is over, by the code that `wait` calls. */
static PyObject *
current_context(void)
{
    return PyThreadState_Get()->context;
}

static PyObject *
cursor_next(Cursor *self)
{
    if (!has_record(self) || (!self->is_shared && current_context() != self->opener)) {
        return call_wait(self);
    }
    Next *next = (Next *)self->spare;
    if (next == NULL || Py_REFCNT(next) > 1 || next->waiting != NULL) {
        State *state = state_of(Py_TYPE(self));
        if (state == NULL || (next = PyObject_GC_New(Next, state->next_type)) == NULL) {
            return NULL;
        }
        next->cursor = NULL;
        next->waiting = NULL;
        PyObject_GC_Track(next);
        Py_XSETREF(self->spare, Py_NewRef(next));
    }
    else {
        Py_INCREF(next);
    }
    Py_XSETREF(next->cursor, (Cursor *)Py_NewRef(self));
    return (PyObject *)next;
}

static PyObject *
cursor_construct(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"is_shared", NULL};
    int is_shared = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$p:Cursor", names, &is_shared)) {
        return NULL;
    }
    Cursor *self = (Cursor *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->wait = Py_NewRef(Py_None);
        self->is_shared = (char)is_shared;
    }
    return (PyObject *)self;
}

static PyObject *
cursor_open(Cursor *self, PyObject *args)
{
    PyObject *records;
    Py_ssize_t index;
    long long turn_ns;
    if (!PyArg_ParseTuple(args, "O!nL:open", &PyList_Type, &records, &index, &turn_ns)) {
        return NULL;
    }
    if (index < 0 || index >= PyList_GET_SIZE(records)) {
        PyErr_SetString(PyExc_ValueError, "there is no record at this index");
        return NULL;
    }
    Py_XSETREF(self->records, Py_NewRef(records));
    Py_XSETREF(self->opener, Py_XNewRef(current_context()));
    self->index = index + 1;
    self->turn_ends_ns = monotonic_ns() + turn_ns;
    return Py_NewRef(PyList_GET_ITEM(records, index));
}

static PyObject *
cursor_take(Cursor *self, PyObject *unused)
{
    PyObject *record = take(self);
    return record != NULL ? record : Py_NewRef(Py_None);
}

static PyObject *
cursor_close(Cursor *self, PyObject *unused)
{
    Py_CLEAR(self->records);
    Py_CLEAR(self->opener);
    Py_RETURN_NONE;
}

static int
cursor_traverse(Cursor *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->wait);
    Py_VISIT(self->records);
    Py_VISIT(self->spare);
    Py_VISIT(self->opener);
    return 0;
}

static int
cursor_clear(Cursor *self)
{
    Py_CLEAR(self->records);
    Py_CLEAR(self->spare);
    Py_CLEAR(self->opener);
    Py_CLEAR(self->wait);
    return 0;
}

static void
cursor_dealloc(Cursor *self)
{
    PyObject_GC_UnTrack(self);
    cursor_clear(self);
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef cursor_methods[] = {
    {"open", (PyCFunction)cursor_open, METH_VARARGS, NULL},
    {"take", (PyCFunction)cursor_take, METH_NOARGS, NULL},
    {"close", (PyCFunction)cursor_close, METH_NOARGS, NULL},
    {NULL},
};

static PyMemberDef cursor_members[] = {
    {"wait", T_OBJECT_EX, offsetof(Cursor, wait), 0, NULL},
    {"index", T_PYSSIZET, offsetof(Cursor, index), READONLY, NULL},
    {NULL},
};

static PyType_Slot cursor_slots[] = {
    {Py_tp_new, cursor_construct},
    {Py_tp_dealloc, cursor_dealloc},
    {Py_tp_traverse, cursor_traverse},
    {Py_tp_clear, cursor_clear},
    {Py_tp_methods, cursor_methods},
    {Py_tp_members, cursor_members},
    {Py_am_aiter, PyObject_SelfIter},
    {Py_am_anext, cursor_next},
    {0, NULL},
};

PyType_Spec cursor_spec = {
    .name = "aiogroup._core.native._native.Cursor",
    .basicsize = sizeof(Cursor),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = cursor_slots,
};
