/* What is made of the bytes and the marks of an answer, compiled: `answers_python.py` is the same in Python.
 *
 * Only the stable ABI of Python 3.11 is used, so that one build serves every later version. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { LINE_ENDS = 3, MOST_DIGITS = 7, BITS = 10, MANTISSA = 52, TABLE_BITS = 10, AT_A_TIME = 1 << (TABLE_BITS - 1) };
static const int64_t EXACT_FLOAT = (int64_t)1 << 53;

typedef struct {
    int64_t end, stamp_ns, floor_ns, read_ns;
} Read;

typedef struct {
    int64_t size, stamp_ns, floor_ns;
} Mark;

typedef struct {
    const char *content;
    size_t size, end; /* end: of the chunk, in the data */
} Chunk;

static bool all_rows(const void *start, Py_ssize_t size, size_t row) {
    if (!size || ((size_t)size % row == 0 && (uintptr_t)start % _Alignof(int64_t) == 0)) return true;
    PyErr_Format(PyExc_ValueError, "expected rows of %zu bytes, each of 64-bit numbers", row);
    return false;
}

/* Raises, and returns NULL. */
static PyObject *too_large(void) {
    return PyErr_SetString(PyExc_OverflowError, "a result has more than 64 bits"), NULL;
}

static int digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The chunk that begins at `at`, where it is whole, has content and nothing but digits for a size. */
static bool next_chunk(const char *data, size_t length, size_t at, Chunk *chunk) {
    size_t size = 0, digits = 0;
    for (int value; at + digits < length && digits <= MOST_DIGITS && (value = digit(data[at + digits])) >= 0; digits++)
        size = 16 * size + (size_t)value;
    size_t start = at + digits + 2;
    if (!size || digits > MOST_DIGITS || start + size + 2 > length) return false;
    if (memcmp(data + start - 2, "\r\n", 2) || memcmp(data + start + size, "\r\n", 2)) return false;
    *chunk = (Chunk){data + start, size, start + size + 2};
    return true;
}

static PyObject *whole_chunks(PyObject *module, PyObject *args) {
    (void)module;
    const char *data;
    const Read *reads;
    Py_ssize_t length, reads_size, before;
    if (!PyArg_ParseTuple(args, "y#y#n", &data, &length, (const char **)&reads, &reads_size, &before)) return NULL;
    if (!all_rows(reads, reads_size, sizeof(Read))) return NULL;
    size_t at = 0, all = 0, count = (size_t)reads_size / sizeof(Read), within = 0;
    for (Chunk chunk; next_chunk(data, (size_t)length, at, &chunk); at = chunk.end) all += chunk.size;
    for (; within < count && reads[within].end <= (int64_t)at; within++)
        if (reads[within].end < (within ? reads[within - 1].end : 0))
            return PyErr_SetString(PyExc_ValueError, "reads must end in ascending order, from 0 on"), NULL;
    if (__builtin_add_overflow((int64_t)before, (int64_t)all, &(int64_t){0})) return too_large();
    PyObject *content = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)all);
    PyObject *sized = content ? PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(within * sizeof(Mark))) : NULL;
    if (!sized) return Py_XDECREF(content), NULL;
    char *body = PyBytes_AsString(content);
    Mark *marks = (Mark *)PyBytes_AsString(sized);
    size_t taken = 0, number = 0;
    Chunk chunk;
    for (; number < within && !reads[number].end; number++)
        marks[number] = (Mark){before, reads[number].stamp_ns, reads[number].floor_ns};
    for (size_t start = 0; start < at; start = chunk.end) {
        next_chunk(data, (size_t)length, start, &chunk);
        memcpy(body + taken, chunk.content, chunk.size);
        int64_t begins = chunk.content - data;
        for (; number < within && reads[number].end <= (int64_t)chunk.end; number++) {
            int64_t part = reads[number].end - begins;
            part = part < 0 ? 0 : part > (int64_t)chunk.size ? (int64_t)chunk.size : part;
            marks[number] = (Mark){before + (int64_t)taken + part, reads[number].stamp_ns, reads[number].floor_ns};
        }
        taken += chunk.size;
    }
    return Py_BuildValue("nNN", (Py_ssize_t)at, content, sized);
}

/* Where the first byte is, from `at` on, that a plain text can't hold. */
static size_t plain_until(const char *body, size_t length, size_t at) {
    while (at < length && body[at] != '"' && body[at] != '\\' && body[at] != '\n') at++;
    return at;
}

/* Where the event that begins at `at` has its text's end; 0 where it is not `begin`, a text and `end`. */
static size_t text_end(const char *body, size_t length, size_t at, const char *begin, size_t begin_size, const char *end,
                       size_t end_size) {
    if (at + begin_size > length || memcmp(body + at, begin, begin_size)) return 0;
    size_t close = plain_until(body, length, at + begin_size);
    return close > at + begin_size && close + end_size <= length && !memcmp(body + close, end, end_size) ? close : 0;
}

static PyObject *alike(PyObject *module, PyObject *args) {
    (void)module;
    const char *body, *begin, *end;
    Py_ssize_t length, start, begin_size, end_size;
    if (!PyArg_ParseTuple(args, "y#ny#y#", &body, &length, &start, &begin, &begin_size, &end, &end_size)) return NULL;
    const char *line_end = memchr(end, '\n', (size_t)end_size);
    bool closes = end_size && (*end == '"' || *end == '\\' || *end == '\n');
    if (start < 0 || !line_end || !closes)
        return PyErr_SetString(PyExc_ValueError, "`end` must close a text and hold a line end, and `at` be positive"), NULL;
    size_t at = (size_t)start, count = 0, close;
    while ((close = text_end(body, (size_t)length, at, begin, (size_t)begin_size, end, (size_t)end_size)))
        at = close + (size_t)end_size, count++;
    PyObject *found = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * sizeof(int64_t)));
    if (!found) return NULL;
    int64_t *places = (int64_t *)PyBytes_AsString(found);
    for (size_t number = 0, from = (size_t)start; number < count; number++) {
        close = plain_until(body, (size_t)length, from + (size_t)begin_size);
        places[number] = (int64_t)close + (line_end - end);
        from = close + (size_t)end_size;
    }
    return Py_BuildValue("nN", (Py_ssize_t)at, found);
}

static PyObject *arrivals(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer ends, marks;
    if (!PyArg_ParseTuple(args, "y*y*", &ends, &marks)) return NULL;
    const int64_t *end = ends.buf;
    const Mark *mark = marks.buf;
    size_t count = (size_t)ends.len / sizeof *end, reads = (size_t)marks.len / sizeof *mark, read = 0;
    PyObject *stamps = NULL, *earlier = NULL, *found = NULL;
    if (!all_rows(end, ends.len, sizeof *end) || !all_rows(mark, marks.len, sizeof *mark)) goto over;
    bool ascending = true;
    for (size_t event = 1; event < count; event++) ascending &= end[event - 1] <= end[event];
    for (size_t later = 1; later < reads; later++) ascending &= mark[later - 1].size <= mark[later].size;
    if (!ascending) {
        PyErr_SetString(PyExc_ValueError, "events and reads must end in ascending order");
        goto over;
    }
    if (count && (!reads || mark[reads - 1].size < end[count - 1])) {
        PyErr_SetString(PyExc_IndexError, "an event ends behind the last read");
        goto over;
    }
    stamps = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * sizeof(int64_t)));
    earlier = stamps ? PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * sizeof(int64_t))) : NULL;
    if (!earlier) goto over;
    int64_t *stamp = (int64_t *)PyBytes_AsString(stamps), *unsure = (int64_t *)PyBytes_AsString(earlier);
    bool any = false;
    for (size_t event = 0; event < count; event++) {
        while (mark[read].size < end[event]) read++;
        stamp[event] = mark[read].stamp_ns, unsure[event] = 0;
        if ((uint64_t)mark[read].size - (uint64_t)end[event] > LINE_ENDS &&
            __builtin_sub_overflow(mark[read].stamp_ns, mark[read].floor_ns, &unsure[event])) {
            too_large();
            goto over;
        }
        any |= unsure[event] != 0;
    }
    found = any ? Py_BuildValue("OO", stamps, earlier) : Py_BuildValue("Oy#", stamps, "", (Py_ssize_t)0);
over:
    Py_XDECREF(stamps), Py_XDECREF(earlier);
    PyBuffer_Release(&ends), PyBuffer_Release(&marks);
    return found;
}

/* A sum of two 64-bit words. */
static PyObject *wide(unsigned __int128 sum) {
    PyObject *high = PyLong_FromUnsignedLongLong((unsigned long long)(sum >> 64));
    PyObject *low = PyLong_FromUnsignedLongLong((unsigned long long)sum), *bits = PyLong_FromLong(64);
    PyObject *shifted = high && bits ? PyNumber_Lshift(high, bits) : NULL;
    PyObject *whole = shifted && low ? PyNumber_Or(shifted, low) : NULL;
    Py_XDECREF(high), Py_XDECREF(low), Py_XDECREF(bits), Py_XDECREF(shifted);
    return whole;
}

static PyObject *gaps(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer stamps;
    if (!PyArg_ParseTuple(args, "y*", &stamps)) return NULL;
    const int64_t *stamp = stamps.buf;
    size_t count = (size_t)stamps.len / sizeof *stamp, number = count ? count - 1 : 0;
    PyObject *found = NULL, *sum = NULL, *made = NULL;
    if (!all_rows(stamp, stamps.len, sizeof *stamp)) goto over;
    if (!(found = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(number * sizeof(int64_t))))) goto over;
    int64_t longest = 0, *gap = (int64_t *)PyBytes_AsString(found);
    unsigned __int128 changes = 0;
    for (size_t at = 0; at < number; at++) {
        if (__builtin_sub_overflow(stamp[at + 1], stamp[at], &gap[at])) {
            too_large();
            goto over;
        }
        if (!at || gap[at] > longest) longest = gap[at];
        if (at) changes += gap[at] > gap[at - 1] ? (uint64_t)gap[at] - (uint64_t)gap[at - 1]
                                                 : (uint64_t)gap[at - 1] - (uint64_t)gap[at];
    }
    if ((sum = wide(changes))) made = Py_BuildValue("OLO", found, (long long)longest, sum);
over:
    Py_XDECREF(found), Py_XDECREF(sum);
    PyBuffer_Release(&stamps);
    return made;
}

/* The bucket of a histogram: the leading bits of the value as a float, its exponent and the start of its mantissa. */
static int64_t bucket(int64_t value) {
    double real = (double)value;
    int64_t bits;
    memcpy(&bits, &real, sizeof bits);
    return bits >> (MANTISSA - BITS);
}

/* Adds how many of the values are in which bucket. */
static bool count_some(PyObject *counts, const int64_t *value, size_t count) {
    static const uint64_t SPREAD = 0x9E3779B97F4A7C15;
    struct {
        int64_t bucket, count;
    } table[2 * AT_A_TIME] = {0}; /* open addressing; never more than half full */
    for (size_t at = 0; at < count; at++) {
        int64_t its = bucket(value[at]);
        size_t place = (uint64_t)its * SPREAD >> (64 - TABLE_BITS);
        while (table[place].count && table[place].bucket != its) place = (place + 1) % (2 * AT_A_TIME);
        table[place].bucket = its, table[place].count++;
    }
    for (size_t place = 0; place < 2 * AT_A_TIME; place++) {
        if (!table[place].count) continue;
        PyObject *key = PyLong_FromLongLong(table[place].bucket), *before = key ? PyDict_GetItemWithError(counts, key) : NULL;
        long long more = table[place].count + (before ? PyLong_AsLongLong(before) : 0);
        PyObject *sum = PyErr_Occurred() ? NULL : PyLong_FromLongLong(more);
        bool good = sum && !PyDict_SetItem(counts, key, sum);
        Py_XDECREF(key), Py_XDECREF(sum);
        if (!good) return false;
    }
    return true;
}

static PyObject *measured(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer values;
    if (!PyArg_ParseTuple(args, "y*", &values)) return NULL;
    const int64_t *value = values.buf;
    if (!all_rows(value, values.len, sizeof *value)) return PyBuffer_Release(&values), NULL;
    size_t count = (size_t)values.len / sizeof *value;
    int64_t low = count ? value[0] : 0, high = low;
    unsigned __int128 total = 0, squares = 0;
    bool fits = true;
    for (size_t at = 0; at < count && low >= 0 && high < EXACT_FLOAT; at++) {
        if (value[at] < low) low = value[at];
        if (value[at] > high) high = value[at];
        total += (uint64_t)value[at];
        unsigned __int128 square = (unsigned __int128)(uint64_t)value[at] * (uint64_t)value[at];
        fits &= !__builtin_add_overflow(squares, square, &squares);
    }
    if (low < 0 || high >= EXACT_FLOAT || !fits) { /* for Python to look at */
        PyBuffer_Release(&values);
        Py_RETURN_NONE;
    }
    PyObject *counts = PyDict_New(), *sum = wide(total), *sum_of_squares = wide(squares), *found = NULL;
    bool good = counts && sum && sum_of_squares;
    for (size_t at = 0; good && at < count; at += AT_A_TIME)
        good = count_some(counts, value + at, count - at < AT_A_TIME ? count - at : AT_A_TIME);
    if (good) found = Py_BuildValue("nLLOOO", (Py_ssize_t)count, (long long)low, (long long)high, sum, sum_of_squares, counts);
    Py_XDECREF(counts), Py_XDECREF(sum), Py_XDECREF(sum_of_squares);
    PyBuffer_Release(&values);
    return found;
}

/* Whether a time can be off by more than `fine`; `later` is NULL if no time can be more. */
static bool is_unsure(const int64_t *earlier, const int64_t *later, size_t at, int64_t fine) {
    return earlier[at] > fine || (later ? later[at] : 0) > fine;
}

static PyObject *sides(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer values, before, after;
    long long fine;
    if (!PyArg_ParseTuple(args, "y*y*y*L", &values, &before, &after, &fine)) return NULL;
    const int64_t *value = values.buf, *earlier = before.buf, *later = after.buf;
    size_t count = (size_t)values.len / sizeof *value, doubts = 0;
    PyObject *part[4] = {0}, *found = NULL; /* the sure ones; the others as measured, at least, at most */
    if (!all_rows(value, values.len, sizeof *value) || !all_rows(earlier, before.len, sizeof *earlier) ||
        !all_rows(later, after.len, sizeof *later))
        goto over;
    if (before.len != values.len || (after.len && after.len != values.len)) {
        PyErr_SetString(PyExc_ValueError, "each value needs how far it can be off");
        goto over;
    }
    if (!after.len) later = NULL;
    for (size_t at = 0; at < count; at++) doubts += is_unsure(earlier, later, at, fine);
    int64_t *number[4];
    for (int side = 0; side < 4; side++) {
        part[side] = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)((side ? doubts : count - doubts) * sizeof(int64_t)));
        if (!part[side]) goto over;
        number[side] = (int64_t *)PyBytes_AsString(part[side]);
    }
    for (size_t at = 0; at < count; at++) {
        if (!is_unsure(earlier, later, at, fine)) {
            *number[0]++ = value[at];
            continue;
        }
        int64_t least = 0, most;
        if ((value[at] > earlier[at] && __builtin_sub_overflow(value[at], earlier[at], &least)) ||
            __builtin_add_overflow(value[at], later ? later[at] : 0, &most)) {
            too_large();
            goto over;
        }
        *number[1]++ = value[at], *number[2]++ = least, *number[3]++ = most;
    }
    found = Py_BuildValue("OOOO", part[0], part[1], part[2], part[3]);
over:
    for (int side = 0; side < 4; side++) Py_XDECREF(part[side]);
    PyBuffer_Release(&values), PyBuffer_Release(&before), PyBuffer_Release(&after);
    return found;
}

static PyObject *bins(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer stamps;
    long long start, width;
    if (!PyArg_ParseTuple(args, "y*LL", &stamps, &start, &width)) return NULL;
    if (width < 1) {
        PyBuffer_Release(&stamps);
        return PyErr_SetString(PyExc_ValueError, "a bin has a width"), NULL;
    }
    const int64_t *stamp = stamps.buf;
    PyObject *found = all_rows(stamp, stamps.len, sizeof *stamp) ? PyList_New(0) : NULL;
    int64_t last = 0;
    for (size_t at = 0, count = (size_t)stamps.len / sizeof *stamp; found && at < count; at++) {
        int64_t since;
        if (__builtin_sub_overflow(stamp[at], start, &since)) {
            too_large();
            Py_CLEAR(found);
            break;
        }
        int64_t bin = since / width - (since % width < 0);
        if (at && bin == last) continue;
        last = bin;
        PyObject *number = PyLong_FromLongLong(bin);
        if (!number || PyList_Append(found, number)) Py_CLEAR(found);
        Py_XDECREF(number);
    }
    PyBuffer_Release(&stamps);
    return found;
}

static PyMethodDef functions[] = {
    {"whole_chunks", whole_chunks, METH_VARARGS, "The whole chunks at the beginning, and the marks of their reads."},
    {"alike", alike, METH_VARARGS, "Events that differ in their text alone, and where they end."},
    {"arrivals", arrivals, METH_VARARGS, "When each event arrived, and how much earlier it may have."},
    {"gaps", gaps, METH_VARARGS, "Between stamps, the longest, and the sum of their changes."},
    {"sides", sides, METH_VARARGS, "Times that are sure, and of the others what was measured, the least and the most."},
    {"bins", bins, METH_VARARGS, "In which bins of time stamps lie, each told once where neighbours share it."},
    {"measured", measured, METH_VARARGS, "Number, least, most, sum, squares and counts of buckets; None for values out of the usual range."},
    {0},
};

static PyModuleDef_Slot slots[] = {{0}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_answers", NULL, 0, functions, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__answers(void) {
    return PyModuleDef_Init(&definition);
}
