/* The poller of the load engine, compiled: `poller.py` says what it does, and is the same in Python.
 *
 * Only the stable ABI of Python 3.11 is used, so that one build serves every later version. */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <structmember.h>

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef SCM_TIMESTAMPNS
#define SCM_TIMESTAMPNS 35
#endif

enum { LEAST_ROOM = 16 << 10, MOST_KEPT = 1 << 20, OPEN = -1 };
static const int64_t SECOND_NS = 1000000000, MOST_ASKEW_NS = 10000000000, WHILE_NS = 2000000000;

typedef struct {
    int64_t end, stamp_ns, floor_ns, read_ns;
} Mark;

typedef struct {
    int fd, ended; /* ended: OPEN, 0 where the other side closed, else an errno */
    bool collects;
    size_t enough; /* bytes: with so many of them, it is handed over */
    char *data;
    size_t size, room;
    Mark *marks;
    size_t count, marks_room;
    int64_t drained_ns, stamp_ns; /* when nothing was left in the kernel's queue; the last stamp */
    int64_t left_ns;              /* floor of what was left there, where the last read did not take everything; else 0 */
    char tail[4];                 /* the last bytes, handed over or not */
} Watched;

typedef struct {
    PyObject_HEAD
    int epoll, schedstat;
    Watched **watched; /* by file descriptor */
    int length;
    int registered;
    struct epoll_event *events;
    int events_room, next, harvested; /* of the harvest that is being read */
    int64_t swept_ns, floor_ns;       /* of the last look at all sockets; what came in this harvest came after floor */
    int64_t realtime_ahead_ns;
    int64_t run_delay_ns; /* as last read */
    int64_t woken_ns;     /* of the last sleep: when this thread ran again, less the time that it had run for */
    long sleeps;          /* of this thread meanwhile */
    int64_t late_ns[2];   /* the latest wake-up that no wait for a core explains: of this while, and of the one before */
    int64_t while_ns;     /* when this while began */
} Poller;

static int64_t clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * SECOND_NS + now.tv_nsec;
}

static int64_t now_ns(void) {
    return clock_ns(CLOCK_MONOTONIC);
}

/* How long this thread was ready to run and did not, in all; -1 where the kernel does not say. */
static int64_t run_delay_ns(const Poller *self) {
    char text[96], *rest;
    ssize_t size = self->schedstat < 0 ? -1 : pread(self->schedstat, text, sizeof text - 1, 0);
    if (size <= 0) return -1;
    text[size] = 0;
    strtoll(text, &rest, 10);
    int64_t delay = strtoll(rest, &rest, 10);
    return strtoll(rest, NULL, 10) > 0 ? delay : -1; /* a kernel that does not count says that it never ran */
}

/* How often this thread has slept, or was stopped. */
static long sleeps(void) {
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) ? -1 : usage.ru_nvcsw;
}

static Watched *find(Poller *self, PyObject *file) {
    int fd = PyObject_AsFileDescriptor(file);
    if (fd < 0) return NULL;
    if (fd < self->length && self->watched[fd]) return self->watched[fd];
    PyErr_Format(PyExc_KeyError, "%d is not watched", fd);
    return NULL;
}

static bool control(Poller *self, int how, int fd, unsigned events) {
    struct epoll_event event = {.events = events, .data.fd = fd};
    if (!epoll_ctl(self->epoll, how, fd, &event)) return true;
    PyErr_SetFromErrno(PyExc_OSError);
    return false;
}

/* Grows the table of sockets for a file descriptor that is open, so that it has a bound; whether there is memory. */
static bool has_room_for(Poller *self, int fd) {
    if (fd < self->length) return true;
    int length = fd + 256;
    Watched **grown = realloc(self->watched, (size_t)length * sizeof *grown);
    if (!grown) return false;
    memset(grown + self->length, 0, (size_t)(length - self->length) * sizeof *grown);
    self->watched = grown, self->length = length;
    return true;
}

static PyObject *poller_watch(Poller *self, PyObject *args) {
    PyObject *file;
    unsigned events;
    if (!PyArg_ParseTuple(args, "OI", &file, &events)) return NULL;
    int fd = PyObject_AsFileDescriptor(file);
    if (fd < 0) return NULL;
    bool known = fd < self->length && self->watched[fd];
    if (!control(self, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, events)) return NULL;
    if (known) Py_RETURN_NONE;
    Watched *w = calloc(1, sizeof *w);
    if (!w || !has_room_for(self, fd)) {
        control(self, EPOLL_CTL_DEL, fd, 0);
        return free(w), PyErr_NoMemory();
    }
    *w = (Watched){.fd = fd, .ended = OPEN};
    self->watched[fd] = w;
    self->registered++;
    Py_RETURN_NONE;
}

static void forget(Poller *self, Watched *w) {
    int left = self->next;
    for (int i = self->next; i < self->harvested; i++)
        if (self->events[i].data.fd != w->fd) self->events[left++] = self->events[i];
    self->harvested = left;
    self->watched[w->fd] = NULL;
    self->registered--;
    free(w->data), free(w->marks), free(w);
}

static PyObject *poller_forget(Poller *self, PyObject *file) {
    Watched *w = find(self, file);
    if (!w || !control(self, EPOLL_CTL_DEL, w->fd, 0)) return NULL;
    forget(self, w);
    Py_RETURN_NONE;
}

static PyObject *poller_collect(Poller *self, PyObject *args) {
    PyObject *file;
    Py_ssize_t enough;
    if (!PyArg_ParseTuple(args, "On", &file, &enough)) return NULL;
    Watched *w = find(self, file);
    if (!w) return NULL;
    w->enough = enough < 0 ? 0 : (size_t)enough;
    w->collects = enough >= 0;
    Py_RETURN_NONE;
}

static PyObject *poller_take(Poller *self, PyObject *file) {
    Watched *w = find(self, file);
    if (!w) return NULL;
    PyObject *taken = Py_BuildValue("y#y#i", w->data ? w->data : "", (Py_ssize_t)w->size, w->marks ? (char *)w->marks : "",
                                    (Py_ssize_t)(w->count * sizeof(Mark)), w->ended);
    if (!taken) return NULL;
    w->size = w->count = 0;
    if (w->room > MOST_KEPT) free(w->data), w->data = NULL, w->room = 0;
    return taken;
}

static int64_t stamp_of(const Poller *self, struct msghdr *message, int64_t least_ns, int64_t floor_ns, int64_t now) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_TIMESTAMPNS) continue;
        struct timespec at;
        memcpy(&at, CMSG_DATA(c), sizeof at);
        int64_t stamp = at.tv_sec * SECOND_NS + at.tv_nsec - self->realtime_ahead_ns;
        /* a clock that was set is not believed, nor that time goes back */
        if (stamp > now || floor_ns - stamp > MOST_ASKEW_NS) return now;
        return stamp < least_ns ? least_ns : stamp;
    }
    return now;
}

static bool grow(Watched *w) {
    if (w->room - w->size < LEAST_ROOM) {
        size_t room = w->room ? 2 * w->room : 2 * LEAST_ROOM;
        char *grown = realloc(w->data, room);
        if (!grown) return false;
        w->data = grown, w->room = room;
    }
    if (w->count == w->marks_room) {
        size_t room = w->marks_room ? 2 * w->marks_room : 64;
        Mark *grown = realloc(w->marks, room * sizeof *grown);
        if (!grown) return false;
        w->marks = grown, w->marks_room = room;
    }
    return true;
}

static void keep_tail(Watched *w, const char *data, size_t size) {
    size_t kept = size < sizeof w->tail ? sizeof w->tail - size : 0;
    memmove(w->tail, w->tail + sizeof w->tail - kept, kept);
    memcpy(w->tail + kept, data + size - (sizeof w->tail - kept), sizeof w->tail - kept);
}

/* Reads all that has come; whether Python is to see it now, -1 without memory. */
static int read_all(Poller *self, Watched *w) {
    _Alignas(struct cmsghdr) char control_room[64];
    for (;;) {
        if (!grow(w)) return -1;
        size_t room = w->room - w->size;
        struct iovec part = {w->data + w->size, room};
        struct msghdr message = {
            .msg_iov = &part, .msg_iovlen = 1, .msg_control = control_room, .msg_controllen = sizeof control_room};
        int64_t before = now_ns();
        ssize_t size = recvmsg(w->fd, &message, MSG_DONTWAIT);
        if (size < 0 && errno == EINTR) continue;
        if (size < 0 && errno == EAGAIN) return w->left_ns = 0, w->size && w->size >= w->enough;
        if (size <= 0) return w->ended = size < 0 ? errno : 0, 1;
        int64_t now = now_ns(), floor = w->drained_ns > self->floor_ns ? w->drained_ns : self->floor_ns;
        if (w->left_ns) floor = w->left_ns; /* it was ready at the last look, and for longer */
        keep_tail(w, w->data + w->size, (size_t)size);
        w->size += (size_t)size;
        w->stamp_ns = stamp_of(self, &message, w->stamp_ns, floor, now);
        if (floor > w->stamp_ns) floor = w->stamp_ns; /* the kernel stamps first, and wakes then */
        w->marks[w->count++] = (Mark){(int64_t)w->size, w->stamp_ns, floor, now};
        if ((size_t)size < room) {
            w->drained_ns = before, w->left_ns = 0;
            return !memcmp(w->tail, "\r\n\r\n", 4) || w->size >= w->enough;
        }
        w->left_ns = floor;
        if (w->size >= MOST_KEPT) return 1;
    }
}

static bool look(Poller *self, int timeout_ms) {
    Py_BEGIN_ALLOW_THREADS
    long slept = timeout_ms ? sleeps() : 0;
    int64_t ran = timeout_ms ? clock_ns(CLOCK_THREAD_CPUTIME_ID) : 0;
    self->harvested = epoll_wait(self->epoll, self->events, self->events_room, timeout_ms);
    if (timeout_ms && self->harvested > 0) { /* before this thread waits for the others */
        self->woken_ns = now_ns() - (clock_ns(CLOCK_THREAD_CPUTIME_ID) - ran);
        self->sleeps = sleeps() - slept;
    }
    Py_END_ALLOW_THREADS
    self->next = 0;
    if (self->harvested >= 0) return true;
    self->harvested = 0;
    if (errno == EINTR) return !PyErr_CheckSignals();
    PyErr_SetFromErrno(PyExc_OSError);
    return false;
}

/* This thread was to be woken at `due` and began to wait for a core at `came`: the most of such differences in a while. */
static int64_t lateness(Poller *self, int64_t came, int64_t due) {
    if (came - self->while_ns > WHILE_NS)
        self->late_ns[1] = self->late_ns[0], self->late_ns[0] = 0, self->while_ns = came;
    if (due && came - due > self->late_ns[0]) self->late_ns[0] = came - due;
    return self->late_ns[0] > self->late_ns[1] ? self->late_ns[0] : self->late_ns[1];
}

/* Looks at all sockets; where none is ready, and it may, sleeps until one is. */
static bool harvest(Poller *self, bool sleep, int64_t due) {
    int room = self->registered + 1;
    if (self->events_room < room) {
        struct epoll_event *grown = realloc(self->events, (size_t)(2 * room) * sizeof *grown);
        if (!grown) return PyErr_NoMemory(), false;
        self->events = grown, self->events_room = 2 * room;
    }
    self->floor_ns = self->swept_ns;
    self->swept_ns = now_ns();
    if (!look(self, 0)) return false;
    if (!sleep || self->harvested) return true;
    int64_t waited = self->run_delay_ns;
    if (!look(self, 1000)) return false;
    self->run_delay_ns = run_delay_ns(self);
    self->floor_ns = self->swept_ns;
    /* What woke this thread came when it began to wait for a core. One that was stopped too can't tell. */
    bool told = self->harvested && self->sleeps == 1 && waited >= 0 && self->run_delay_ns >= 0;
    int64_t came = self->woken_ns - (self->run_delay_ns - waited);
    if (told) came -= lateness(self, came, due);
    if (told && came > self->floor_ns) self->swept_ns = self->floor_ns = came;
    return true;
}

static bool tell(PyObject *told, long number) {
    PyObject *object = PyLong_FromLong(number);
    bool good = object && !PyList_Append(told, object);
    Py_XDECREF(object);
    return good;
}

static PyObject *poller_wait(Poller *self, PyObject *args) {
    int sleep;
    long long until_ns;
    if (!PyArg_ParseTuple(args, "pL", &sleep, &until_ns)) return NULL;
    PyObject *ready = PyList_New(0);
    if (!ready) return NULL;
again:
    if (self->next == self->harvested && !harvest(self, sleep, until_ns)) return Py_DECREF(ready), NULL;
    while (self->next < self->harvested) {
        struct epoll_event event = self->events[self->next++];
        Watched *w = self->watched[event.data.fd];
        if (!w) continue; /* another thread forgot it meanwhile */
        unsigned mask = event.events;
        if (w->collects && mask & ~(unsigned)EPOLLOUT && w->ended == OPEN) {
            int full = read_all(self, w);
            if (full < 0) return Py_DECREF(ready), PyErr_NoMemory();
            mask &= EPOLLOUT;
            if (full) mask |= EPOLLIN;
        }
        if (mask && (!tell(ready, w->fd) || !tell(ready, mask))) return Py_DECREF(ready), NULL;
        if (until_ns && now_ns() >= until_ns) return ready;
    }
    if (sleep && !PyList_Size(ready)) {
        if (PyErr_CheckSignals()) return Py_DECREF(ready), NULL;
        goto again;
    }
    return ready;
}

static PyObject *poller_close(Poller *self, PyObject *unused) {
    (void)unused;
    for (int fd = 0; fd < self->length; fd++)
        if (self->watched[fd]) forget(self, self->watched[fd]);
    if (self->epoll >= 0) close(self->epoll);
    if (self->schedstat >= 0) close(self->schedstat);
    self->epoll = self->schedstat = -1;
    Py_RETURN_NONE;
}

static PyObject *poller_new(PyTypeObject *type, PyObject *args, PyObject *named) {
    (void)args, (void)named;
    allocfunc allocate = PyType_GetSlot(type, Py_tp_alloc);
    Poller *self = (Poller *)allocate(type, 0);
    if (!self) return NULL;
    self->schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    self->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (self->epoll < 0) return PyErr_SetFromErrno(PyExc_OSError), Py_DECREF(self), NULL;
    self->swept_ns = now_ns();
    self->run_delay_ns = run_delay_ns(self);
    return (PyObject *)self;
}

static void poller_dealloc(Poller *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    Py_XDECREF(poller_close(self, NULL));
    free(self->watched), free(self->events);
    freefunc release = PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyMethodDef poller_methods[] = {
    {"watch", (PyCFunction)poller_watch, METH_VARARGS, "Tell from now on when one of these events happens."},
    {"forget", (PyCFunction)poller_forget, METH_O, "Watch it no longer."},
    {"collect", (PyCFunction)poller_collect, METH_VARARGS, "Read it, and tell when so many bytes have come or a read ends with an empty line."},
    {"take", (PyCFunction)poller_take, METH_O, "What was read: bytes, marks, and how it ended (-1: it did not)."},
    {"wait", (PyCFunction)poller_wait, METH_VARARGS, "File descriptors and events by turns."},
    {"close", (PyCFunction)poller_close, METH_NOARGS, "Give everything back."},
    {0},
};

static PyMemberDef poller_members[] = {
    {"realtime_ahead_ns", T_LONGLONG, offsetof(Poller, realtime_ahead_ns), 0, "Of the monotonic clock."},
    {0},
};

static PyType_Slot poller_slots[] = {
    {Py_tp_doc, "Waits for sockets, and reads answers until they look complete; see poller.py."},
    {Py_tp_new, poller_new},
    {Py_tp_dealloc, poller_dealloc},
    {Py_tp_methods, poller_methods},
    {Py_tp_members, poller_members},
    {0},
};

static PyType_Spec poller_spec = {"benchhouse.load._poller.Poller", sizeof(Poller), 0, Py_TPFLAGS_DEFAULT, poller_slots};

static int execute(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &poller_spec, NULL);
    if (!type) return -1;
    int failed = PyModule_AddObjectRef(module, "Poller", type);
    Py_DECREF(type);
    return failed;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, execute}, {0}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_poller", NULL, 0, NULL, module_slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__poller(void) {
    return PyModuleDef_Init(&module);
}
