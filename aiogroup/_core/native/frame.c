/* next_records: as frames.next_records. Finds the records in an answer that has not arrived completely. */

#include "native.h"

enum { HEAD, TOPIC, PARTITION, TAGS, LOST };
enum {
    TOP_SIZE = 10,       /* throttle time, error, session */
    ID_SIZE = 16,        /* of a topic */
    FIXED_SIZE = 30,     /* a partition up to its aborted transactions */
    ABORTED_SIZE = 16,   /* one aborted transaction, before its tags */
    PREFERRED_SIZE = 4,  /* the preferred replica, before the records */
    CORRELATION_SIZE = 4,
};

typedef struct {
    Bytes from;
    int is_lost; /* not a number of the protocol, or more than the answer can hold */
} Walk;

static int
pass(Walk *walk, uint64_t count)
{
    if (count > (uint64_t)(walk->from.end - walk->from.at)) {
        return 0;
    }
    walk->from.at += count;
    return 1;
}

static int
read_unsigned(Walk *walk, uint64_t *number)
{
    uint64_t raw = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        if (walk->from.at >= walk->from.end) {
            return 0;
        }
        uint8_t byte = *walk->from.at++;
        raw |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *number = raw;
            return 1;
        }
    }
    walk->is_lost = 1;
    return 0;
}

static int
pass_tags(Walk *walk)
{
    uint64_t count, tag, size;
    if (!read_unsigned(walk, &count)) {
        return 0;
    }
    while (count-- > 0) {
        if (!read_unsigned(walk, &tag) || !read_unsigned(walk, &size) || !pass(walk, size)) {
            return 0;
        }
    }
    return 1;
}

static int
pass_aborted(Walk *walk)
{
    uint64_t count;
    if (!read_unsigned(walk, &count)) {
        return 0;
    }
    while (count-- > 1) {
        if (!pass(walk, ABORTED_SIZE) || !pass_tags(walk)) {
            return 0;
        }
    }
    return 1;
}

/* The length of an array, which must not be null. */
static int
read_count(Walk *walk, uint64_t *count)
{
    if (!read_unsigned(walk, count)) {
        return 0;
    }
    if (*count == 0) {
        walk->is_lost = 1;
        return 0;
    }
    *count -= 1;
    return 1;
}

typedef struct {
    int stage;
    uint64_t topics, partitions; /* left, including the current one */
} Place;

/* One step; sets `length` if records begin. 0 if bytes are missing or the place is lost: the caller drops the step. */
static int
step(Walk *walk, Place *place, int has_ids, uint64_t *length)
{
    uint64_t name;
    switch (place->stage) {
    case HEAD:
        if (!pass(walk, CORRELATION_SIZE) || !pass_tags(walk) || !pass(walk, TOP_SIZE) ||
            !read_count(walk, &place->topics)) {
            return 0;
        }
        place->stage = TOPIC;
        return 1;
    case TOPIC:
        if (place->topics == 0) {
            walk->is_lost = 1; /* nothing more can be found */
            return 0;
        }
        if (has_ids ? !pass(walk, ID_SIZE) : !(read_count(walk, &name) && pass(walk, name))) {
            return 0;
        }
        if (!read_count(walk, &place->partitions)) {
            return 0;
        }
        place->stage = PARTITION;
        return 1;
    case PARTITION:
        if (place->partitions == 0) {
            if (!pass_tags(walk)) {
                return 0;
            }
            place->topics--;
            place->stage = TOPIC;
            return 1;
        }
        if (!pass(walk, FIXED_SIZE) || !pass_aborted(walk) || !pass(walk, PREFERRED_SIZE) ||
            !read_unsigned(walk, length)) {
            return 0;
        }
        *length -= *length > 0;
        place->stage = TAGS;
        return 1;
    case TAGS:
        if (!pass_tags(walk)) {
            return 0;
        }
        place->partitions--;
        place->stage = PARTITION;
        return 1;
    default:
        walk->is_lost = 1;
        return 0;
    }
}

PyObject *
next_records(PyObject *module, PyObject *args)
{
    Py_buffer data;
    Py_ssize_t pos;
    int stage, has_ids;
    unsigned long long topics, partitions;
    if (!PyArg_ParseTuple(args, "y*(niKK)p:next_records", &data, &pos, &stage, &topics, &partitions, &has_ids)) {
        return NULL;
    }
    const uint8_t *start = data.buf;
    Walk walk = {{start + (pos < 0 || pos > data.len ? data.len : pos), start + data.len}, 0};
    Place place = {stage, topics, partitions};
    uint64_t length = 0;
    for (;;) {
        const uint8_t *at = walk.from.at;
        Place before = place;
        if (!step(&walk, &place, has_ids, &length)) {
            walk.from.at = at;
            place = before;
            length = 0;
            break;
        }
        if (length > 0) {
            break;
        }
    }
    pos = walk.from.at - start;
    PyBuffer_Release(&data);
    return Py_BuildValue("(niKK)K", pos, walk.is_lost ? LOST : place.stage, (unsigned long long)place.topics,
                         (unsigned long long)place.partitions, (unsigned long long)length);
}
