/* What is done once per record, compiled. pure.py says what each type means; here stands only how. */

#ifndef AIOGROUP_NATIVE_H
#define AIOGROUP_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

extern PyTypeObject Record_Type;
extern PyTypeObject Reader_Type;
extern PyTypeObject Cursor_Type;
extern PyTypeObject Next_Type;
extern PyTypeObject Heads_Type;
PyObject *extent(PyObject *module, PyObject *args);
PyObject *read_times(PyObject *module, PyObject *args);
PyObject *next_records(PyObject *module, PyObject *args);

/* What the records of a batch have in common, as a tuple: one reference per record instead of four. A late one has a
 * tuple of its own, longer by its lateness. */
enum { ORIGIN_TP, ORIGIN_TIMESTAMP_TYPE, ORIGIN_LANE, ORIGIN_ACKNOWLEDGE, ORIGIN_SIZE, ORIGIN_LATENESS = ORIGIN_SIZE };

/* A new record. Steals key, value and headers (NULL: none), also when it fails. `has_room`: the value is of value_new. */
PyObject *record_new(PyObject *origin, int64_t offset, int64_t timestamp, PyObject *key, PyObject *value,
                     PyObject *headers, int has_room);

/* Bytes that are read from `at` on. */
typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} Bytes;

/* So high that no offset of its batch overflows. */
#define LAST_BASE_OFFSET (INT64_MAX - INT32_MAX - 1)

/* A record's value of VALUE_MIN to VALUE_MAX bytes: value.c. What value_new made is given back by value_let_go. */
enum { VALUE_MIN = 513, VALUE_MAX = 4096 };
PyObject *value_new(const uint8_t *at, Py_ssize_t size);
void value_let_go(PyObject *value);

/* NULL, with a ValueError that says what is wrong with a batch. */
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

/* Bytes behind their length, None where that is negative; NULL with an error. */
PyObject *read_bytes(Bytes *from);

/* A tuple of (name, value); `headers` stays NULL where there are none. 0 with an error. */
int read_headers(Bytes *from, PyObject **headers);

#endif
