/* Values of about a kilobyte, whose memory is used again. They are too long for what the allocator keeps at hand: it would
 * merge each with its neighbours and cut it off them anew, over memory that is in no cache by then. */

#include "native.h"

enum {
    STEP = 128, /* so much longer at most is the memory of a value than the value */
    FIRST = (VALUE_MIN - 1) / STEP,
    CLASSES = (VALUE_MAX - 1) / STEP - FIRST + 1,
    SPARE_MAX = 1024 * 1024, /* bytes in all */
};

/* By length. A spare value holds the address of the next one of its class. */
static PyBytesObject *spare[CLASSES];
static Py_ssize_t spare_size = 0;

static PyBytesObject **
spare_of(Py_ssize_t size)
{
    return &spare[(size - 1) / STEP - FIRST];
}

static Py_ssize_t
room_for(Py_ssize_t size)
{
    return ((size - 1) / STEP + 1) * STEP;
}

PyObject *
value_new(const uint8_t *at, Py_ssize_t size)
{
    PyBytesObject **first = spare_of(size), *value = *first;
    if (value == NULL) {
        value = (PyBytesObject *)PyBytes_FromStringAndSize(NULL, room_for(size));
        if (value == NULL) {
            return NULL;
        }
        Py_SET_SIZE(value, size);
    }
    else {
        memcpy(first, value->ob_sval, sizeof(*first));
        spare_size -= room_for(size);
        PyObject_InitVar((PyVarObject *)value, &PyBytes_Type, size);
        _Py_COMP_DIAG_PUSH
        _Py_COMP_DIAG_IGNORE_DEPR_DECLS
        value->ob_shash = -1;
        _Py_COMP_DIAG_POP
    }
    memcpy(value->ob_sval, at, (size_t)size);
    value->ob_sval[size] = 0;
    return (PyObject *)value;
}

/* Give back what is spare of other lengths, which may never come again, until there is room for `size` bytes. */
static int
has_room_for(Py_ssize_t size, PyBytesObject **own)
{
    static int next = 0;
    for (int passed = 0; passed < CLASSES && spare_size + size > SPARE_MAX;) {
        PyBytesObject **first = &spare[next], *value = *first;
        if (first == own || value == NULL) {
            next = (next + 1) % CLASSES;
            passed++;
            continue;
        }
        memcpy(first, value->ob_sval, sizeof(*first));
        spare_size -= room_for(Py_SIZE(value));
        Py_DECREF(value);
    }
    return spare_size + size <= SPARE_MAX;
}

void
value_let_go(PyObject *object)
{
    Py_ssize_t size = PyBytes_GET_SIZE(object);
    PyBytesObject **first = spare_of(size), *value = (PyBytesObject *)object;
    if (Py_REFCNT(object) > 1 || !has_room_for(room_for(size), first)) {
        Py_DECREF(object);
        return;
    }
    memcpy(value->ob_sval, first, sizeof(*first));
    *first = value;
    spare_size += room_for(size);
}
