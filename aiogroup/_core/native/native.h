/* The work that is done once per record, compiled. pure.py documents each type; the C comments only say how. */

#ifndef AIOGROUP_NATIVE_H
#define AIOGROUP_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#ifdef __GNUC__
#pragma GCC diagnostic ignored "-Wunused-parameter" /* a slot's parameters are Python's, needed or not */
#endif

typedef struct Record Record;

enum { SPARE_RECORDS = 2048 };

/* All state that outlives a call. Each module object, and so each interpreter, has its own. It is used only
 * under the lock of its interpreter. */
typedef struct {
    PyTypeObject *record_type;
    PyTypeObject *reader_type;
    PyTypeObject *cursor_type;
    PyTypeObject *next_type;
    PyTypeObject *heads_type;
    PyTypeObject *maker_type;
    Record *spare[SPARE_RECORDS];
    int spare_count;
} State;

struct Record {
    PyObject_HEAD
    PyObject *origin;
    PyObject *key;
    PyObject *value;
    PyObject *headers; /* NULL: none */
    long long offset;
    long long timestamp;
    State *state; /* lives as long as the record while the record is not tracked; see record_dealloc */
    int is_tracked;
};

extern PyType_Spec record_spec;
extern PyType_Spec reader_spec;
extern PyType_Spec cursor_spec;
extern PyType_Spec next_spec;
extern PyType_Spec heads_spec;
extern PyType_Spec maker_spec;

static inline State *
state_of_module(PyObject *module)
{
    return (State *)PyModule_GetState(module);
}

/* NULL with an error while the collector clears the module: other objects that it clears at the same time may still
 * run code. */
static inline State *
usable(State *state)
{
    if (state != NULL && state->record_type == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "aiogroup._core.native._native is being unloaded");
        return NULL;
    }
    return state;
}

/* The state of one of our types, none of which can be a base. */
static inline State *
state_of(PyTypeObject *type)
{
    return usable((State *)PyType_GetModuleState(type));
}

PyObject *columns(PyObject *module, PyObject *records);
PyObject *extent(PyObject *module, PyObject *args);
PyObject *read_plain(PyObject *module, PyObject *const *args, Py_ssize_t args_count);
PyObject *read_times(PyObject *module, PyObject *args);
PyObject *next_records(PyObject *module, PyObject *args);
PyObject *write_fetch(PyObject *module, PyObject *const *args, Py_ssize_t args_count);
PyObject *read_fetch(PyObject *module, PyObject *const *args, Py_ssize_t args_count);

/* Makes structures of one type: the places of their slots, in the order of the fields. */
typedef struct {
    PyObject_VAR_HEAD
    vectorcallfunc call;
    PyTypeObject *type;
    Py_ssize_t offsets[];
} Maker;

static inline PyObject **
maker_slot(const Maker *maker, PyObject *structure, Py_ssize_t field)
{
    return (PyObject **)((char *)structure + maker->offsets[field]);
}

static inline int
is_maker(State *state, PyObject *object, Py_ssize_t field_count)
{
    return Py_IS_TYPE(object, state->maker_type) && Py_SIZE(object) == field_count;
}

static inline int
is_made_by(const Maker *maker, PyObject *structure)
{
    return Py_IS_TYPE(structure, maker->type);
}

/* The part that the records of a batch share, as a tuple: one reference per record instead of four. A late record has a
 * tuple of its own, longer by its lateness. */
enum { ORIGIN_TP, ORIGIN_TIMESTAMP_TYPE, ORIGIN_LANE, ORIGIN_ACKNOWLEDGE, ORIGIN_SIZE, ORIGIN_LATENESS = ORIGIN_SIZE };

/* A new record. Steals key, value and headers (NULL: none), also when it fails. */
PyObject *record_new(State *state, PyObject *origin, int64_t offset, int64_t timestamp, PyObject *key, PyObject *value,
                     PyObject *headers);

/* The spare records: visiting the types that they refer to, for the collector, and freeing them. */
int records_traverse(State *state, visitproc visit, void *arg);
void records_let_go(State *state);

/* Bytes, to be read from `at` on. */
typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} Bytes;

/* The highest base offset with which no offset of the batch overflows. */
#define LAST_BASE_OFFSET (INT64_MAX - INT32_MAX - 1)

/* Returns NULL, with a ValueError that says what is wrong with a batch. */
void *damaged(const char *what);

static inline uint64_t
big_endian(const uint8_t *at, int size)
{
    uint64_t number = 0;
    for (int i = 0; i < size; i++) {
        number = number << 8 | at[i];
    }
    return number;
}

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

/* Bytes that follow their length, None if it is negative; NULL with an error. */
PyObject *read_bytes(Bytes *from);

/* A tuple of (name, value) pairs; `headers` stays NULL if there are none. 0 with an error. */
int read_headers(Bytes *from, PyObject **headers);

#endif
