/* write_fetch and read_fetch: as fetch.py. None wherever something unusual is met, which the general codec then writes,
 * reads or refuses. */

#include "native.h"

enum { ONE_BYTE = 0x80, ID_SIZE = 16 };

static PyObject *
none_unless_error(void)
{
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* What is written, and whether there was a value that does not fit. */
typedef struct {
    uint8_t *at;
    int is_unusual;
} Out;

static void
put(Out *out, int64_t number, int size)
{
    for (int i = size - 1; i >= 0; i--) {
        *out->at++ = (uint8_t)((uint64_t)number >> 8 * i);
    }
}

static void
put_bytes(Out *out, PyObject *bytes)
{
    memcpy(out->at, PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes));
    out->at += PyBytes_GET_SIZE(bytes);
}

/* An int of so many bytes. Others are left to the general encoder, which says what is wrong with them. */
static int
read_int(PyObject *value, int size, int64_t *number)
{
    int is_over;
    if (value == NULL || !PyLong_Check(value)) {
        return 0;
    }
    *number = PyLong_AsLongLongAndOverflow(value, &is_over);
    int64_t limit = INT64_MAX >> (64 - 8 * size);
    return !is_over && *number <= limit && *number >= -limit - 1;
}

static void
put_int(Out *out, PyObject *value, int size)
{
    int64_t number = 0;
    if (!read_int(value, size, &number)) {
        out->is_unusual = 1;
    }
    put(out, number, size);
}

/* The fields of FetchRequest, FetchTopic and FetchPartition, in their order. */
enum { CLUSTER_ID, REPLICA_ID, REPLICA_STATE, MAX_WAIT_MS, MIN_BYTES, MAX_BYTES, ISOLATION_LEVEL, SESSION_ID, SESSION_EPOCH,
       TOPICS, FORGOTTEN_TOPICS, RACK_ID, REQUEST_FIELDS };
enum { TOPIC_NAME, TOPIC_ID, PARTITIONS, TOPIC_FIELDS };
enum { PARTITION, LEADER_EPOCH, FETCH_OFFSET, LAST_FETCHED_EPOCH, LOG_START_OFFSET, PARTITION_MAX_BYTES, DIRECTORY_ID,
       HIGH_WATERMARK, PARTITION_FIELDS };

enum { HEAD_SIZE = 2 + 2 + 4 + 2 + 1 + 4 * 3 + 1 + 4 * 2 + 1, PARTITION_SIZE = 33, LONGEST_NAME = INT16_MAX };

/* A tuple whose length takes one byte, of structures of this maker; its length, -1 if it is something else. */
static Py_ssize_t
count_of(PyObject *items, const Maker *maker)
{
    if (items == NULL || !PyTuple_CheckExact(items) || PyTuple_GET_SIZE(items) + 1 >= ONE_BYTE) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); i++) {
        if (!is_made_by(maker, PyTuple_GET_ITEM(items, i))) {
            return -1;
        }
    }
    return PyTuple_GET_SIZE(items);
}

/* Whether a field has its default; 0 with an error if their comparison fails. */
static int
is_default(PyObject *value, PyObject *expected)
{
    return value != NULL && PyObject_RichCompareBool(value, expected, Py_EQ) == 1;
}

static void
put_partition(Out *out, const Maker *maker, PyObject *partition, PyObject *no_directory)
{
    static const int sizes[] = {4, 4, 8, 4, 8, 4};
    int64_t high_watermark;
    for (int field = PARTITION; field <= PARTITION_MAX_BYTES; field++) {
        put_int(out, *maker_slot(maker, partition, field), sizes[field]);
    }
    if (!is_default(*maker_slot(maker, partition, DIRECTORY_ID), no_directory) ||
        !read_int(*maker_slot(maker, partition, HIGH_WATERMARK), 8, &high_watermark) || high_watermark != INT64_MAX) {
        out->is_unusual = 1;
    }
    put(out, 0, 1);
}

/* The topic's id; 0 with an error. */
static int
put_id(Out *out, PyObject *topic_id)
{
    static const uint8_t none[ID_SIZE];
    PyObject *bytes = topic_id == NULL ? NULL : PyObject_GetAttrString(topic_id, "bytes");
    if (bytes == NULL && (topic_id == NULL || PyErr_ExceptionMatches(PyExc_AttributeError))) {
        PyErr_Clear();
        out->is_unusual = 1;
        return 1;
    }
    if (bytes == NULL) {
        return 0;
    }
    if (!PyBytes_CheckExact(bytes) || PyBytes_GET_SIZE(bytes) != ID_SIZE ||
        memcmp(PyBytes_AS_STRING(bytes), none, ID_SIZE) == 0) {
        out->is_unusual = 1;
    } else {
        put_bytes(out, bytes);
    }
    Py_DECREF(bytes);
    return 1;
}

/* How many bytes the topics take; -1 if they are left to the general encoder. */
static Py_ssize_t
size_of(PyObject *topics, const Maker *of_topic, const Maker *of_partition)
{
    Py_ssize_t size = 0, count = count_of(topics, of_topic);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *partitions = *maker_slot(of_topic, PyTuple_GET_ITEM(topics, i), PARTITIONS);
        Py_ssize_t inner = count_of(partitions, of_partition);
        if (inner < 0) {
            return -1;
        }
        size += ID_SIZE + 2 + inner * PARTITION_SIZE;
    }
    return count < 0 ? -1 : size;
}

PyObject *
write_fetch(PyObject *module, PyObject *const *args, Py_ssize_t args_count)
{
    State *state = usable(state_of_module(module));
    if (state == NULL) {
        return NULL;
    }
    if (args_count != 10 || !PyBytes_Check(args[3]) || !PyBytes_Check(args[4]) || !is_maker(state, args[5], REQUEST_FIELDS) ||
        !is_maker(state, args[6], TOPIC_FIELDS) || !is_maker(state, args[7], PARTITION_FIELDS)) {
        PyErr_SetString(PyExc_TypeError, "write_fetch(message, version, correlation_id, client, end, request, topic, "
                                         "partition, no_replica, no_directory)");
        return NULL;
    }
    PyObject *message = args[0], *client = args[3], *end = args[4];
    const Maker *request = (Maker *)args[5], *of_topic = (Maker *)args[6], *of_partition = (Maker *)args[7];
    if (!is_made_by(request, message) || PyBytes_GET_SIZE(client) > LONGEST_NAME) {
        Py_RETURN_NONE;
    }
    PyObject *topics = *maker_slot(request, message, TOPICS);
    PyObject *forgotten = *maker_slot(request, message, FORGOTTEN_TOPICS);
    int64_t replica_id = 0;
    Py_ssize_t size = size_of(topics, of_topic, of_partition);
    if (size < 0 || forgotten == NULL || !PyTuple_CheckExact(forgotten) || PyTuple_GET_SIZE(forgotten) ||
        *maker_slot(request, message, CLUSTER_ID) != Py_None ||
        !read_int(*maker_slot(request, message, REPLICA_ID), 4, &replica_id) || replica_id != -1 ||
        !is_default(*maker_slot(request, message, REPLICA_STATE), args[8])) {
        return none_unless_error();
    }
    size += HEAD_SIZE + PyBytes_GET_SIZE(client) + PyBytes_GET_SIZE(end);
    PyObject *written = PyBytes_FromStringAndSize(NULL, size);
    if (written == NULL) {
        return NULL;
    }
    Out out = {(uint8_t *)PyBytes_AS_STRING(written), 0};
    put(&out, 1, 2);
    put_int(&out, args[1], 2);
    put_int(&out, args[2], 4);
    put(&out, PyBytes_GET_SIZE(client), 2);
    put_bytes(&out, client);
    put(&out, 0, 1);
    for (int field = MAX_WAIT_MS; field <= SESSION_EPOCH; field++) {
        put_int(&out, *maker_slot(request, message, field), field == ISOLATION_LEVEL ? 1 : 4);
    }
    put(&out, PyTuple_GET_SIZE(topics) + 1, 1);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(topics) && !out.is_unusual; i++) {
        PyObject *topic = PyTuple_GET_ITEM(topics, i), *partitions = *maker_slot(of_topic, topic, PARTITIONS);
        if (!put_id(&out, *maker_slot(of_topic, topic, TOPIC_ID))) {
            Py_DECREF(written);
            return NULL;
        }
        if (out.is_unusual) {
            break;
        }
        put(&out, PyTuple_GET_SIZE(partitions) + 1, 1);
        for (Py_ssize_t j = 0; j < PyTuple_GET_SIZE(partitions); j++) {
            put_partition(&out, of_partition, PyTuple_GET_ITEM(partitions, j), args[9]);
        }
        put(&out, 0, 1);
    }
    if (out.is_unusual) {
        Py_DECREF(written);
        return none_unless_error();
    }
    put_bytes(&out, end);
    return written;
}

/* Reading: what a call makes of its answer. */
typedef struct {
    PyObject *make_response, *make_topic, *make_partition, *uuid_of, *defaults, *view;
    const uint8_t *begin;
    Bytes left;
} In;

/* NULL without an error: left to the general decoder. */
static const uint8_t *
take(In *in, Py_ssize_t size)
{
    const uint8_t *at = in->left.at;
    if (in->left.end - at < size) {
        return NULL;
    }
    in->left.at += size;
    return at;
}

static int64_t
number_at(const uint8_t **at, int size)
{
    int64_t number = (int64_t)(big_endian(*at, size) << (64 - 8 * size)) >> (64 - 8 * size);
    *at += size;
    return number;
}

/* The length of the records, plus one, in at most four bytes; -1 if it takes more or is cut off. */
static Py_ssize_t
take_length(In *in)
{
    Py_ssize_t length = 0;
    for (int shift = 0; shift <= 21; shift += 7) {
        const uint8_t *at = take(in, 1);
        if (at == NULL) {
            return -1;
        }
        length |= (Py_ssize_t)(*at & 0x7f) << shift;
        if (*at < ONE_BYTE) {
            return length;
        }
    }
    return -1;
}

static PyObject *
called(PyObject *callable, PyObject **args, int count)
{
    PyObject *made = NULL;
    int is_whole = 1;
    for (int i = 0; i < count; i++) {
        is_whole &= args[i] != NULL;
    }
    if (is_whole) {
        made = PyObject_Vectorcall(callable, args, (size_t)count, NULL);
    }
    for (int i = 0; i < count; i++) {
        Py_XDECREF(args[i]);
    }
    return made;
}

static PyObject *
take_partition(In *in)
{
    enum { FIXED_SIZE = 4 + 2 + 8 * 3 + 1 + 4 };
    const uint8_t *at = take(in, FIXED_SIZE), *tags;
    Py_ssize_t length = at == NULL ? -1 : take_length(in);
    Py_ssize_t begin = in->left.at - in->begin, size = length > 0 ? length - 1 : 0;
    if (length < 0 || take(in, size) == NULL || (tags = take(in, 1)) == NULL || *tags) {
        return NULL;
    }
    int64_t index = number_at(&at, 4), error_code = number_at(&at, 2), high_watermark = number_at(&at, 8),
            stable = number_at(&at, 8), start = number_at(&at, 8);
    uint8_t aborted = *at++;
    int64_t replica = number_at(&at, 4);
    if (aborted > 1) { /* there were transactions */
        return NULL;
    }
    PyObject *args[] = {
        PyLong_FromLongLong(index),
        PyLong_FromLongLong(error_code),
        PyLong_FromLongLong(high_watermark),
        PyLong_FromLongLong(stable),
        PyLong_FromLongLong(start),
        Py_NewRef(PyTuple_GET_ITEM(in->defaults, 0)),
        Py_NewRef(PyTuple_GET_ITEM(in->defaults, 1)),
        Py_NewRef(PyTuple_GET_ITEM(in->defaults, 2)),
        aborted ? PyTuple_New(0) : Py_NewRef(Py_None),
        PyLong_FromLongLong(replica),
        length ? PySequence_GetSlice(in->view, begin, begin + size) : Py_NewRef(Py_None),
    };
    return called(in->make_partition, args, sizeof(args) / sizeof(args[0]));
}

/* An array whose count takes one byte. */
static PyObject *
take_array(In *in, PyObject *(*take_item)(In *))
{
    const uint8_t *count = take(in, 1);
    if (count == NULL || *count == 0 || *count >= ONE_BYTE) {
        return NULL;
    }
    PyObject *items = PyTuple_New(*count - 1);
    for (Py_ssize_t i = 0; items != NULL && i < PyTuple_GET_SIZE(items); i++) {
        PyObject *item = take_item(in);
        if (item == NULL) {
            Py_CLEAR(items);
            break;
        }
        PyTuple_SET_ITEM(items, i, item);
    }
    return items;
}

static PyObject *
take_topic(In *in)
{
    const uint8_t *id = take(in, ID_SIZE), *tags;
    PyObject *partitions = id == NULL ? NULL : take_array(in, take_partition);
    if (partitions == NULL) {
        return NULL;
    }
    if ((tags = take(in, 1)) == NULL || *tags) {
        Py_DECREF(partitions);
        return NULL;
    }
    PyObject *raw[] = {PyBytes_FromStringAndSize((const char *)id, ID_SIZE)};
    PyObject *args[] = {PyUnicode_FromString(""), called(in->uuid_of, raw, 1), partitions};
    return called(in->make_topic, args, 3);
}

static PyObject *
take_answer(In *in)
{
    enum { FIXED_SIZE = 4 + 1 + 4 + 2 + 4 };
    const uint8_t *at = take(in, FIXED_SIZE), *tags;
    if (at == NULL || at[4]) {
        return NULL;
    }
    PyObject *topics = take_array(in, take_topic);
    if (topics == NULL) {
        return NULL;
    }
    if ((tags = take(in, 1)) == NULL || *tags || in->left.at != in->left.end) {
        Py_DECREF(topics);
        return NULL;
    }
    int64_t correlation_id = number_at(&at, 4);
    at++;
    int64_t throttle_time_ms = number_at(&at, 4), error_code = number_at(&at, 2), session_id = number_at(&at, 4);
    PyObject *args[] = {PyLong_FromLongLong(throttle_time_ms), PyLong_FromLongLong(error_code),
                        PyLong_FromLongLong(session_id), topics, PyTuple_New(0)};
    PyObject *response = called(in->make_response, args, 5);
    return response == NULL ? NULL : Py_BuildValue("(LN)", (long long)correlation_id, response);
}

PyObject *
read_fetch(PyObject *module, PyObject *const *args, Py_ssize_t args_count)
{
    if (args_count != 6 || !PyTuple_Check(args[5]) || PyTuple_GET_SIZE(args[5]) != 3) {
        PyErr_SetString(PyExc_TypeError, "read_fetch(frame, response, topic, partition, uuid_of, defaults)");
        return NULL;
    }
    PyObject *view = PyMemoryView_FromObject(args[0]);
    Py_buffer bytes;
    if (view == NULL || PyObject_GetBuffer(view, &bytes, PyBUF_SIMPLE) < 0) {
        Py_XDECREF(view);
        return NULL;
    }
    In in = {args[1], args[2], args[3], args[4], args[5], view, bytes.buf, {bytes.buf, (uint8_t *)bytes.buf + bytes.len}};
    PyObject *read = take_answer(&in);
    PyBuffer_Release(&bytes);
    Py_DECREF(view);
    return read == NULL ? none_unless_error() : read;
}
