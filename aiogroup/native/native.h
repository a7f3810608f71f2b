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

/* What the records of a batch have in common, as a tuple: one reference per record instead of four. */
enum { ORIGIN_TP, ORIGIN_TIMESTAMP_TYPE, ORIGIN_LANE, ORIGIN_ACKNOWLEDGE, ORIGIN_SIZE };

/* A new record. Steals key, value and headers (NULL: none), also when it fails. */
PyObject *record_new(PyObject *origin, int64_t offset, int64_t timestamp, PyObject *key, PyObject *value,
                     PyObject *headers);

#endif
