/* LD_PRELOAD library for disk_recorder.py: it writes every change of files below a folder to a log, in order.
 *
 * BENCH_DISK_ROOT is the folder, BENCH_DISK_LOG the log, BENCH_DISK_CONTROL a file of sizeof(struct control) bytes that
 * all processes share. One lock around each call and its log entry gives the calls of all processes one order. The
 * control file can also make the n-th call that needs space, or the n-th sync, fail.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

struct control {
    pthread_mutex_t lock;
    int64_t counts[2];  /* calls so far: that need space, that sync */
    int64_t fail_at[2]; /* the first call that fails, counted from 1; 0: none */
    int64_t fail_count; /* how many calls fail from there on */
    int64_t error;
};

struct entry {
    uint32_t size;
    char kind;
    char pad[3];
    uint32_t pid;
    uint32_t path_size;
    uint32_t other_size;
    uint32_t pad2;
    uint64_t inode;
    int64_t offset;
    int64_t length;
};

static struct control *control;
static char root[PATH_MAX];
static size_t root_size;
static int log_file = -1;

__attribute__((constructor)) static void start(void)
{
    const char *folder = getenv("BENCH_DISK_ROOT"), *log = getenv("BENCH_DISK_LOG"), *shared = getenv("BENCH_DISK_CONTROL");
    if (!folder || !log || !shared || control) return;
    snprintf(root, sizeof root, "%s", folder);
    int file = (int)syscall(SYS_openat, AT_FDCWD, shared, O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    void *mapped = (void *)syscall(SYS_mmap, 0, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    syscall(SYS_close, file);
    if (mapped == MAP_FAILED) return;
    int opened = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (opened < 0) return;
    log_file = (int)syscall(SYS_fcntl, opened, F_DUPFD_CLOEXEC, 900); /* out of the way of programs that close theirs */
    syscall(SYS_close, opened);
    root_size = strlen(root);
    control = mapped;
}

static void take(void)
{
    if (pthread_mutex_lock(&control->lock) == EOWNERDEAD) pthread_mutex_consistent(&control->lock);
}

static void release(void)
{
    int saved = errno;
    pthread_mutex_unlock(&control->lock);
    errno = saved;
}

static int is_inside(const char *path)
{
    return !strncmp(path, root, root_size) && (path[root_size] == '/' || !path[root_size]);
}

/* The absolute path that a name stands for, its last part not followed; 0 if it is not below the folder. */
static int locate(int at, const char *name, char *path)
{
    char joined[PATH_MAX * 2], parent[PATH_MAX * 2];
    if (!control || !name || !*name) return 0;
    int saved = errno;
    if (*name == '/') snprintf(joined, sizeof joined, "%s", name);
    else {
        char folder[PATH_MAX], link[64];
        ssize_t size;
        if (at == AT_FDCWD) snprintf(link, sizeof link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", at);
        size = readlink(link, folder, sizeof folder - 1);
        if (size < 0) return errno = saved, 0;
        folder[size] = 0;
        snprintf(joined, sizeof joined, "%s/%s", folder, name);
    }
    size_t size = strlen(joined);
    while (size > 1 && joined[size - 1] == '/') joined[--size] = 0;
    char *last = strrchr(joined, '/');
    snprintf(parent, sizeof parent, "%.*s", (int)(last - joined), joined);
    char real_parent[PATH_MAX];
    if (!realpath(*parent ? parent : "/", real_parent)) return errno = saved, 0;
    snprintf(path, PATH_MAX, "%.*s/%.255s", PATH_MAX - 300, strcmp(real_parent, "/") ? real_parent : "", last + 1);
    errno = saved;
    return is_inside(path);
}

static int locate_open(int file, char *path, struct stat *about)
{
    char link[64];
    if (!control) return 0;
    int saved = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    if (size < 0) return errno = saved, 0;
    path[size] = 0;
    int inside = is_inside(path) && !fstat(file, about);
    errno = saved;
    return inside;
}

static void append(char kind, const char *path, const char *other, uint64_t inode, int64_t offset, int64_t length,
                   const struct iovec *data, int pieces)
{
    int saved = errno;
    struct entry entry = {0, kind, {0}, (uint32_t)getpid(), (uint32_t)strlen(path), (uint32_t)(other ? strlen(other) : 0), 0, inode, offset, length};
    struct iovec parts[64] = {{&entry, sizeof entry}, {(void *)path, entry.path_size}, {(void *)(other ? other : ""), entry.other_size}};
    int count = 3;
    int64_t left = data ? length : 0;
    for (int i = 0; i < pieces && left > 0 && count < 64; i++) {
        size_t size = data[i].iov_len < (size_t)left ? data[i].iov_len : (size_t)left;
        parts[count++] = (struct iovec){data[i].iov_base, size};
        left -= (int64_t)size;
    }
    for (int i = 0; i < count; i++) entry.size += (uint32_t)parts[i].iov_len;
    syscall(SYS_writev, log_file, parts, count);
    errno = saved;
}

/* Whether this call is to fail; errno is set then. */
static int fails(int sync, const char *path)
{
    int64_t number = ++control->counts[sync], first = control->fail_at[sync];
    if (!first || number < first || number >= first + control->fail_count) return 0;
    append('E', path, 0, 0, sync, number, 0, 0);
    errno = (int)control->error;
    return 1;
}

static uint64_t inode_of(const char *path)
{
    struct stat about;
    int saved = errno;
    uint64_t inode = lstat(path, &about) ? 0 : about.st_ino;
    errno = saved;
    return inode;
}

#define REFUSE(sync, path, result) \
    if (fails(sync, path)) { \
        release(); \
        return result; \
    }

/* Opening */

static int open_file(int at, const char *name, int flags, mode_t mode)
{
    char path[PATH_MAX];
    int changes = flags & (O_CREAT | O_TRUNC);
    if (!changes || (flags & O_TMPFILE) == O_TMPFILE || !locate(at, name, path))
        return (int)syscall(SYS_openat, at, name, flags | O_LARGEFILE, mode);
    take();
    struct stat about;
    int saved = errno, is_new = lstat(path, &about) && errno == ENOENT;
    errno = saved;
    if (is_new && (flags & O_CREAT)) REFUSE(0, path, -1)
    int file = (int)syscall(SYS_openat, at, name, flags | O_LARGEFILE, mode);
    if (file >= 0 && !fstat(file, &about) && S_ISREG(about.st_mode)) {
        if (is_new) append('C', path, 0, about.st_ino, 0, about.st_mode & 07777, 0, 0);
        else if (flags & O_TRUNC) append('T', path, 0, about.st_ino, 0, 0, 0, 0);
    }
    release();
    return file;
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) \
    { \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        return open_file(AT_FDCWD, path, flags, mode); \
    }
#define OPENAT(name) \
    int name(int at, const char *path, int flags, ...) \
    { \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        return open_file(at, path, flags, mode); \
    }
OPEN(open) OPEN(open64) OPENAT(openat) OPENAT(openat64)
int __open_2(const char *path, int flags) { return open_file(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return open_file(AT_FDCWD, path, flags, 0); }
int __openat_2(int at, const char *path, int flags) { return open_file(at, path, flags, 0); }
int __openat64_2(int at, const char *path, int flags) { return open_file(at, path, flags, 0); }
int creat(const char *path, mode_t mode) { return open_file(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return open_file(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

/* Writing */

static ssize_t write_file(int file, const struct iovec *data, int pieces, off_t offset, int positioned)
{
    char path[PATH_MAX];
    struct stat about;
    int inside = locate_open(file, path, &about) && S_ISREG(about.st_mode);
    if (inside) {
        take();
        REFUSE(0, path, -1)
    }
    ssize_t written = positioned ? syscall(SYS_pwritev, file, data, pieces, offset, 0) : syscall(SYS_writev, file, data, pieces);
    if (inside) {
        if (written > 0) append('W', path, 0, about.st_ino, positioned ? offset : lseek(file, 0, SEEK_CUR) - written, written, data, pieces);
        release();
    }
    return written;
}

ssize_t write(int file, const void *data, size_t size)
{
    return write_file(file, &(struct iovec){(void *)data, size}, 1, 0, 0);
}
ssize_t pwrite(int file, const void *data, size_t size, off_t offset)
{
    return write_file(file, &(struct iovec){(void *)data, size}, 1, offset, 1);
}
ssize_t pwrite64(int file, const void *data, size_t size, off_t offset)
{
    return write_file(file, &(struct iovec){(void *)data, size}, 1, offset, 1);
}
ssize_t writev(int file, const struct iovec *data, int pieces) { return write_file(file, data, pieces > 60 ? 60 : pieces, 0, 0); }
ssize_t pwritev(int file, const struct iovec *data, int pieces, off_t offset)
{
    return write_file(file, data, pieces > 60 ? 60 : pieces, offset, 1);
}
ssize_t pwritev64(int file, const struct iovec *data, int pieces, off_t offset)
{
    return write_file(file, data, pieces > 60 ? 60 : pieces, offset, 1);
}

/* Copies within the kernel: programs use reads and writes instead where these are not supported. */
ssize_t sendfile(int out, int in, off_t *offset, size_t count)
{
    char path[PATH_MAX];
    struct stat about;
    if (locate_open(out, path, &about)) return errno = EINVAL, -1;
    return syscall(SYS_sendfile, out, in, offset, count);
}
ssize_t sendfile64(int out, int in, off64_t *offset, size_t count) { return sendfile(out, in, (off_t *)offset, count); }
ssize_t copy_file_range(int in, off64_t *in_offset, int out, off64_t *out_offset, size_t size, unsigned flags)
{
    char path[PATH_MAX];
    struct stat about;
    if (locate_open(out, path, &about)) return errno = EXDEV, -1;
    return syscall(SYS_copy_file_range, in, in_offset, out, out_offset, size, flags);
}
int ioctl(int file, unsigned long request, ...)
{
    va_list more;
    va_start(more, request);
    void *argument = va_arg(more, void *);
    va_end(more);
    if (request == 0x40049409 || request == 0x4020940d) return errno = EOPNOTSUPP, -1; /* FICLONE, FICLONERANGE */
    return (int)syscall(SYS_ioctl, file, request, argument);
}

static int resize(int file, off_t size)
{
    char path[PATH_MAX];
    struct stat about;
    int inside = locate_open(file, path, &about) && S_ISREG(about.st_mode);
    if (inside) {
        take();
        if (size > about.st_size) REFUSE(0, path, -1)
    }
    int result = (int)syscall(SYS_ftruncate, file, size);
    if (inside) {
        if (!result) append('T', path, 0, about.st_ino, 0, size, 0, 0);
        release();
    }
    return result;
}
int ftruncate(int file, off_t size) { return resize(file, size); }
int ftruncate64(int file, off64_t size) { return resize(file, size); }

static int resize_path(const char *name, off_t size)
{
    char path[PATH_MAX];
    int inside = locate(AT_FDCWD, name, path);
    if (inside) take();
    int result = (int)syscall(SYS_truncate, name, size);
    if (inside) {
        if (!result) append('T', path, 0, inode_of(path), 0, size, 0, 0);
        release();
    }
    return result;
}
int truncate(const char *name, off_t size) { return resize_path(name, size); }
int truncate64(const char *name, off64_t size) { return resize_path(name, size); }

static int reserve(int file, int mode, off_t offset, off_t size)
{
    char path[PATH_MAX];
    struct stat about;
    int inside = locate_open(file, path, &about);
    if (inside) {
        take();
        REFUSE(0, path, -1)
    }
    int result = (int)syscall(SYS_fallocate, file, mode, offset, size);
    if (inside) {
        if (!result && !mode && offset + size > about.st_size) append('T', path, 0, about.st_ino, 0, offset + size, 0, 0);
        release();
    }
    return result;
}
int fallocate(int file, int mode, off_t offset, off_t size) { return reserve(file, mode, offset, size); }
int fallocate64(int file, int mode, off64_t offset, off64_t size) { return reserve(file, mode, offset, size); }
int posix_fallocate(int file, off_t offset, off_t size) { return reserve(file, 0, offset, size) ? errno : 0; }
int posix_fallocate64(int file, off64_t offset, off64_t size) { return reserve(file, 0, offset, size) ? errno : 0; }

/* Folders */

static int rename_at(int from, const char *name, int to, const char *new_name, unsigned flags)
{
    char path[PATH_MAX], other[PATH_MAX];
    int inside = locate(from, name, path) | locate(to, new_name, other) << 1;
    if (inside) {
        take();
        REFUSE(0, inside & 1 ? path : other, -1)
    }
    uint64_t inode = inside & 1 ? inode_of(path) : 0, replaced = inside & 2 ? inode_of(other) : 0;
    int result = (int)syscall(SYS_renameat2, from, name, to, new_name, flags);
    if (inside) {
        if (!result && !(inode && inode == replaced)) append('R', inside & 1 ? path : "", inside & 2 ? other : "", inode, flags, 0, 0, 0);
        release();
    }
    return result;
}
int rename(const char *name, const char *new_name) { return rename_at(AT_FDCWD, name, AT_FDCWD, new_name, 0); }
int renameat(int from, const char *name, int to, const char *new_name) { return rename_at(from, name, to, new_name, 0); }
int renameat2(int from, const char *name, int to, const char *new_name, unsigned flags)
{
    return rename_at(from, name, to, new_name, flags);
}

int linkat(int from, const char *name, int to, const char *new_name, int flags)
{
    char path[PATH_MAX], other[PATH_MAX];
    int inside = locate(to, new_name, other);
    if (inside) {
        take();
        REFUSE(0, other, -1)
    }
    int result = (int)syscall(SYS_linkat, from, name, to, new_name, flags);
    if (inside) {
        if (!result) append('L', locate(from, name, path) ? path : "", other, inode_of(other), 0, 0, 0, 0);
        release();
    }
    return result;
}
int link(const char *name, const char *new_name) { return linkat(AT_FDCWD, name, AT_FDCWD, new_name, 0); }

int symlinkat(const char *target, int at, const char *name)
{
    char path[PATH_MAX];
    int inside = locate(at, name, path);
    if (inside) {
        take();
        REFUSE(0, path, -1)
    }
    int result = (int)syscall(SYS_symlinkat, target, at, name);
    if (inside) {
        if (!result) append('Y', path, target, inode_of(path), 0, 0, 0, 0);
        release();
    }
    return result;
}
int symlink(const char *target, const char *name) { return symlinkat(target, AT_FDCWD, name); }

int mkdirat(int at, const char *name, mode_t mode)
{
    char path[PATH_MAX];
    int inside = locate(at, name, path);
    if (inside) {
        take();
        REFUSE(0, path, -1)
    }
    int result = (int)syscall(SYS_mkdirat, at, name, mode);
    if (inside) {
        if (!result) append('M', path, 0, inode_of(path), 0, mode, 0, 0);
        release();
    }
    return result;
}
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

int unlinkat(int at, const char *name, int flags)
{
    char path[PATH_MAX];
    int inside = locate(at, name, path);
    if (inside) take();
    int result = (int)syscall(SYS_unlinkat, at, name, flags);
    if (inside) {
        if (!result) append('U', path, 0, 0, 0, 0, 0, 0);
        release();
    }
    return result;
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }
int remove(const char *name) { return !unlink(name) ? 0 : errno == EISDIR || errno == EPERM ? rmdir(name) : -1; }

/* Syncs: sync_file_range and msync of a part give no guarantee for the file, so they are not counted as syncs. */

static int sync_file(int file, long number)
{
    char path[PATH_MAX];
    struct stat about;
    int inside = locate_open(file, path, &about);
    if (inside) {
        take();
        REFUSE(1, path, -1)
    }
    int result = (int)syscall(number, file);
    if (inside) {
        if (!result) append('F', path, 0, about.st_ino, number, 0, 0, 0);
        release();
    }
    return result;
}
int fsync(int file) { return sync_file(file, SYS_fsync); }
int fdatasync(int file) { return sync_file(file, SYS_fdatasync); }

static void sync_everything(void)
{
    if (!control) return;
    take();
    append('S', root, 0, 0, 0, 0, 0, 0);
    release();
}
void sync(void) { syscall(SYS_sync); sync_everything(); }
int syncfs(int file)
{
    int result = (int)syscall(SYS_syncfs, file);
    if (!result) sync_everything();
    return result;
}

/* Writes through a shared mapping can't be seen: the log says which files have one. */
static void *map(void *address, size_t size, int protection, int flags, int file, off_t offset)
{
    char path[PATH_MAX];
    struct stat about;
    if ((flags & MAP_SHARED) && (protection & PROT_WRITE) && file >= 0 && locate_open(file, path, &about)) {
        take();
        append('P', path, 0, about.st_ino, 0, 0, 0, 0);
        release();
    }
    return (void *)syscall(SYS_mmap, address, size, protection, flags, file, offset);
}
void *mmap(void *address, size_t size, int protection, int flags, int file, off_t offset)
{
    return map(address, size, protection, flags, file, offset);
}
void *mmap64(void *address, size_t size, int protection, int flags, int file, off64_t offset)
{
    return map(address, size, protection, flags, file, offset);
}
