/* Stands between a process and the C library, to fail one call and to record what reaches the disk.
 *
 * Loaded with LD_PRELOAD, and idle until `faults_arm` or `faults_record` is called. Calls on files count if they are
 * in one folder; allocations count wherever they are made. For 64-bit Linux with glibc, whose own entry points (raw
 * system calls, __libc_malloc) carry out all other calls. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if !defined(__GLIBC__) || !defined(__linux__) || !defined(__LP64__)
#error "faults are injected on 64-bit Linux with glibc only"
#endif

/* Calls to fail: any call on a file; one that needs disk space; a read or write, after half of it; an allocation. */
enum { ANY = 1, ROOM = 2, PART = 4, MEMORY = 8 };

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

/* What happened, kept where the process that forked this one sees it even if this one dies. */
struct report {
    int64_t calls, fired;
    void *caller;
    char call[16];
    char path[PATH_MAX];
};

static struct report *report;
static char folder[PATH_MAX];
static size_t folder_length;
static int armed, forever, record_to = -1;
static int64_t due_at;
static DIR *(*next_opendir)(const char *);

__attribute__((constructor)) static void start(void) {
    report = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    next_opendir = (DIR *(*)(const char *))dlsym(RTLD_NEXT, "opendir");
}

struct report *faults_report(void) { return report; }

void faults_watch(const char *path) {
    folder_length = strlen(path);
    memcpy(folder, path, folder_length + 1);
}

void faults_arm(int what, int64_t at, int from_then_on) {
    memset(report, 0, sizeof *report);
    due_at = at, forever = from_then_on;
    __atomic_store_n(&armed, what, __ATOMIC_SEQ_CST);
}

void faults_disarm(void) { __atomic_store_n(&armed, 0, __ATOMIC_SEQ_CST); }

void faults_record(int fd) { record_to = fd; }

/* Whether this call is to fail. */
static int due(int what, const char *call, const char *path, void *caller) {
    if (!(armed & what))
        return 0;
    int64_t number = __atomic_add_fetch(&report->calls, 1, __ATOMIC_SEQ_CST);
    if (number != due_at && !(forever && number > due_at))
        return 0;
    if (!report->fired++) {
        report->caller = caller;
        strncpy(report->call, call, sizeof report->call - 1);
        strncpy(report->path, path, sizeof report->path - 1);
    }
    return 1;
}

/* Whether a path, perhaps relative to an open directory, is in the folder; its full text. An empty path is the
 * directory itself, or any other open file. */
static int inside(int at, const char *path, char *full) {
    if (!(armed & ~MEMORY) && record_to < 0)
        return 0;
    ssize_t length = 0;
    if (path[0] != '/') {
        char link[32];
        if (at == AT_FDCWD)
            strcpy(link, "/proc/self/cwd");
        else
            snprintf(link, sizeof link, "/proc/self/fd/%d", at);
        length = syscall(SYS_readlinkat, AT_FDCWD, link, full, (size_t)PATH_MAX - 1);
        if (length < 0)
            return 0;
        if (path[0])
            full[length++] = '/';
    }
    size_t rest = strlen(path);
    if (length + rest >= PATH_MAX)
        return 0;
    memcpy(full + length, path, rest + 1);
    return !strncmp(full, folder, folder_length) && (full[folder_length] == '/' || !full[folder_length]);
}

/* One line of the record: numbers, then a path, and then bytes. */
static void say(int op, int fd, const char *path, int64_t offset, const void *data, int64_t size) {
    struct stat status = {0};
    if (fd >= 0)
        syscall(SYS_fstat, fd, &status);
    int64_t head[5] = {op, (int64_t)strlen(path), (int64_t)status.st_ino, offset, size};
    syscall(SYS_write, record_to, head, sizeof head);
    syscall(SYS_write, record_to, path, (size_t)head[1]);
    if (data)
        syscall(SYS_write, record_to, data, (size_t)size);
}

void faults_mark(int64_t number) {
    if (record_to >= 0)
        say('k', -1, "", number, NULL, 0);
}

/* Record the content of a file that another process may have written. */
static void say_content(int fd, const char *path) {
    struct stat status;
    if (syscall(SYS_fstat, fd, &status) || !S_ISREG(status.st_mode))
        return;
    char *data = __libc_malloc((size_t)status.st_size + 1);
    int64_t size = syscall(SYS_pread64, fd, data, (size_t)status.st_size, 0L);
    say('c', fd, path, 0, data, size);
    free(data);
}

static void say_named(int op, const char *from, const char *to) {
    char both[2 * PATH_MAX];
    int length = snprintf(both, sizeof both, "%s\n%s", from, to);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, from, O_RDONLY | O_CLOEXEC, 0);
    say_content(fd, from);
    say(op, fd, length < (int)sizeof both ? both : from, 0, NULL, 0);
    syscall(SYS_close, fd);
}

#define CALLER __builtin_return_address(0)
#define FAIL(number, value) return errno = (number), (value)
#define NAMED(at, path)                                                                                               \
    char full[PATH_MAX];                                                                                              \
    int watched = inside(at, path, full)
#define FAULTY(what, number)                                                                                          \
    if (watched && due(what, __func__, full, CALLER))                                                                 \
    FAIL(number, -1)
/* A call that needs room on the disk fails for want of it, or for any other reason. */
#define FAULTY_ROOM                                                                                                   \
    FAULTY(ANY, EIO);                                                                                                 \
    FAULTY(ROOM, ENOSPC)
#define RECORDED (watched && record_to >= 0)

static int open_in(int at, const char *path, int flags, int mode, const char *call, void *caller) {
    NAMED(at, path);
    if (watched && due(ANY, call, full, caller))
        FAIL(EIO, -1);
    if (watched && (flags & O_CREAT) && due(ROOM, call, full, caller))
        FAIL(ENOSPC, -1);
    struct stat status;
    int missing = RECORDED && syscall(SYS_newfstatat, at, path, &status, 0);
    int fd = (int)syscall(SYS_openat, at, path, flags, mode);
    if (RECORDED && fd >= 0 && (flags & O_CREAT) && missing)
        say('n', fd, full, 0, NULL, 0);
    else if (RECORDED && fd >= 0 && (flags & O_TRUNC))
        say('t', fd, full, 0, NULL, 0);
    return fd;
}

#define MODE                                                                                                          \
    int mode = 0;                                                                                                     \
    if (flags & (O_CREAT | __O_TMPFILE)) {                                                                            \
        va_list rest;                                                                                                 \
        va_start(rest, flags);                                                                                        \
        mode = va_arg(rest, int);                                                                                     \
        va_end(rest);                                                                                                 \
    }

int open(const char *path, int flags, ...) {
    MODE return open_in(AT_FDCWD, path, flags, mode, "open", CALLER);
}
int open64(const char *path, int flags, ...) {
    MODE return open_in(AT_FDCWD, path, flags, mode, "open", CALLER);
}
int openat(int at, const char *path, int flags, ...) {
    MODE return open_in(at, path, flags, mode, "openat", CALLER);
}
int openat64(int at, const char *path, int flags, ...) {
    MODE return open_in(at, path, flags, mode, "openat", CALLER);
}

DIR *opendir(const char *path) {
    NAMED(AT_FDCWD, path);
    if (watched && due(ANY, __func__, full, CALLER))
        FAIL(EIO, NULL);
    return next_opendir(path);
}

int close(int fd) {
    NAMED(fd, "");
    int fails = watched && due(ANY, __func__, full, CALLER);
    int done = (int)syscall(SYS_close, fd);
    if (fails)
        FAIL(EIO, -1);
    return done;
}

ssize_t read(int fd, void *data, size_t size) {
    NAMED(fd, "");
    FAULTY(ANY, EIO);
    if (size > 1 && watched && due(PART, __func__, full, CALLER))
        size /= 2;
    return syscall(SYS_read, fd, data, size);
}

ssize_t pread(int fd, void *data, size_t size, off_t offset) {
    NAMED(fd, "");
    FAULTY(ANY, EIO);
    if (size > 1 && watched && due(PART, __func__, full, CALLER))
        size /= 2;
    return syscall(SYS_pread64, fd, data, size, offset);
}

static ssize_t write_at(int fd, const void *data, size_t size, off_t offset, int placed, const char *call, void *caller) {
    NAMED(fd, "");
    int torn = watched && due(ANY, call, full, caller);
    if (watched && due(ROOM, call, full, caller))
        FAIL(ENOSPC, -1);
    if (torn || (size > 1 && watched && due(PART, call, full, caller)))
        size /= 2;
    struct stat status = {0};
    if (RECORDED && !placed) {
        syscall(SYS_fstat, fd, &status);
        offset = fcntl(fd, F_GETFL) & O_APPEND ? status.st_size : syscall(SYS_lseek, fd, 0L, SEEK_CUR);
    }
    ssize_t done = placed ? syscall(SYS_pwrite64, fd, data, size, offset) : syscall(SYS_write, fd, data, size);
    if (RECORDED && done > 0)
        say('w', fd, full, offset, data, done);
    /* A failed write has written a part of its data. */
    if (torn)
        FAIL(EIO, -1);
    return done;
}

ssize_t write(int fd, const void *data, size_t size) { return write_at(fd, data, size, 0, 0, "write", CALLER); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    return write_at(fd, data, size, offset, 1, "pwrite", CALLER);
}

static int sync_file(int fd, long number, const char *call, void *caller) {
    NAMED(fd, "");
    if (watched && due(ANY, call, full, caller))
        FAIL(EIO, -1);
    if (watched && due(ROOM, call, full, caller))
        FAIL(ENOSPC, -1);
    if (RECORDED)
        say_content(fd, full);
    int done = (int)syscall(number, fd);
    if (RECORDED && !done)
        say('s', fd, full, 0, NULL, 0);
    return done;
}

int fsync(int fd) { return sync_file(fd, SYS_fsync, "fsync", CALLER); }
int fdatasync(int fd) { return sync_file(fd, SYS_fdatasync, "fdatasync", CALLER); }

int ftruncate(int fd, off_t size) {
    NAMED(fd, "");
    FAULTY_ROOM;
    int done = (int)syscall(SYS_ftruncate, fd, size);
    if (RECORDED && !done)
        say('t', fd, full, size, NULL, 0);
    return done;
}

int fallocate(int fd, int mode, off_t offset, off_t size) {
    NAMED(fd, "");
    FAULTY_ROOM;
    return (int)syscall(SYS_fallocate, fd, mode, offset, size);
}

int posix_fallocate(int fd, off_t offset, off_t size) { return fallocate(fd, 0, offset, size) ? errno : 0; }

static int move(int at, const char *from, int to_at, const char *to, int op, const char *call, void *caller) {
    char source[PATH_MAX];
    int known = inside(at, from, source);
    NAMED(to_at, to);
    watched |= known;
    if (watched && due(ANY, call, full, caller))
        FAIL(EIO, -1);
    if (watched && due(ROOM, call, full, caller))
        FAIL(ENOSPC, -1);
    if (op == 'r') {
        if (RECORDED)
            say_named(op, source, full);
        return (int)syscall(SYS_renameat2, at, from, to_at, to, 0);
    }
    int done = (int)syscall(SYS_linkat, at, from, to_at, to, 0);
    if (RECORDED && !done)
        say_named(op, source, full);
    return done;
}

int rename(const char *from, const char *to) { return move(AT_FDCWD, from, AT_FDCWD, to, 'r', "rename", CALLER); }
int renameat(int at, const char *from, int to_at, const char *to) {
    return move(at, from, to_at, to, 'r', "renameat", CALLER);
}
int link(const char *from, const char *to) { return move(AT_FDCWD, from, AT_FDCWD, to, 'l', "link", CALLER); }
int linkat(int at, const char *from, int to_at, const char *to, int flags) {
    (void)flags;
    return move(at, from, to_at, to, 'l', "linkat", CALLER);
}

int unlinkat(int at, const char *path, int flags) {
    NAMED(at, path);
    FAULTY(ANY, EIO);
    int done = (int)syscall(SYS_unlinkat, at, path, flags);
    if (RECORDED && !done)
        say('u', -1, full, 0, NULL, 0);
    return done;
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int at, const char *path, mode_t mode) {
    NAMED(at, path);
    FAULTY_ROOM;
    int done = (int)syscall(SYS_mkdirat, at, path, mode);
    if (RECORDED && !done)
        say('m', -1, full, 0, NULL, 0);
    return done;
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset) {
    if (flags & MAP_ANONYMOUS) {
        if (due(MEMORY, __func__, "", CALLER))
            FAIL(ENOMEM, MAP_FAILED);
    } else {
        NAMED(fd, "");
        if (watched && due(ANY, __func__, full, CALLER))
            FAIL(ENOMEM, MAP_FAILED);
    }
    return (void *)syscall(SYS_mmap, address, size, protection, flags, fd, offset);
}

int fcntl(int fd, int command, ...) {
    va_list rest;
    va_start(rest, command);
    void *value = va_arg(rest, void *);
    va_end(rest);
    if (command == F_SETLK || command == F_SETLKW || command == F_GETLK) {
        NAMED(fd, "");
        FAULTY(ANY, EIO);
    }
    return (int)syscall(SYS_fcntl, fd, command, value);
}

int flock(int fd, int operation) {
    NAMED(fd, "");
    FAULTY(ANY, EIO);
    return (int)syscall(SYS_flock, fd, operation);
}

int fstatat(int at, const char *restrict path, struct stat *restrict status, int flags) {
    NAMED(at, path);
    FAULTY(ANY, EIO);
    return (int)syscall(SYS_newfstatat, at, path, status, flags);
}
int stat(const char *restrict path, struct stat *restrict status) { return fstatat(AT_FDCWD, path, status, 0); }
int lstat(const char *restrict path, struct stat *restrict status) {
    return fstatat(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}
int fstat(int fd, struct stat *status) { return fstatat(fd, "", status, AT_EMPTY_PATH); }

/* SQLite sleeps for seconds in all before it gives up on a lock that fails. */
int usleep(useconds_t time) {
    struct timespec left = {time / 1000000, time % 1000000 * 1000};
    return armed ? 0 : (int)syscall(SYS_nanosleep, &left, NULL);
}

int access(const char *path, int mode) {
    NAMED(AT_FDCWD, path);
    FAULTY(ANY, EIO);
    return (int)syscall(SYS_faccessat, AT_FDCWD, path, mode);
}

int chmod(const char *path, mode_t mode) {
    NAMED(AT_FDCWD, path);
    FAULTY(ANY, EIO);
    return (int)syscall(SYS_fchmodat, AT_FDCWD, path, mode);
}
int fchmod(int fd, mode_t mode) {
    NAMED(fd, "");
    FAULTY(ANY, EIO);
    return (int)syscall(SYS_fchmod, fd, mode);
}
int utimensat(int at, const char *path, const struct timespec times[2], int flags) {
    NAMED(at, path);
    FAULTY(ANY, EIO);
    return (int)syscall(SYS_utimensat, at, path, times, flags);
}

/* Programs built with 64-bit offsets use these names. */
#define ALIAS(name, result, ...) result name##64(__VA_ARGS__) __attribute__((alias(#name)))
ALIAS(pread, ssize_t, int, void *, size_t, off_t);
ALIAS(pwrite, ssize_t, int, const void *, size_t, off_t);
ALIAS(ftruncate, int, int, off_t);
ALIAS(fallocate, int, int, int, off_t, off_t);
ALIAS(posix_fallocate, int, int, off_t, off_t);
ALIAS(mmap, void *, void *, size_t, int, int, int, off_t);
ALIAS(fcntl, int, int, int, ...);
int stat64(const char *restrict, struct stat64 *restrict) __attribute__((alias("stat")));
int lstat64(const char *restrict, struct stat64 *restrict) __attribute__((alias("lstat")));
int fstat64(int, struct stat64 *) __attribute__((alias("fstat")));
int fstatat64(int, const char *restrict, struct stat64 *restrict, int) __attribute__((alias("fstatat")));

void *malloc(size_t size) {
    if (due(MEMORY, __func__, "", CALLER))
        FAIL(ENOMEM, NULL);
    return __libc_malloc(size);
}
void *calloc(size_t count, size_t size) {
    if (due(MEMORY, __func__, "", CALLER))
        FAIL(ENOMEM, NULL);
    return __libc_calloc(count, size);
}
void *realloc(void *old, size_t size) {
    if (due(MEMORY, __func__, "", CALLER))
        FAIL(ENOMEM, NULL);
    return __libc_realloc(old, size);
}
void *aligned_alloc(size_t alignment, size_t size) {
    if (due(MEMORY, __func__, "", CALLER))
        FAIL(ENOMEM, NULL);
    return __libc_memalign(alignment, size);
}
int posix_memalign(void **given, size_t alignment, size_t size) {
    if (due(MEMORY, __func__, "", CALLER))
        return ENOMEM;
    void *found = __libc_memalign(alignment, size);
    if (!found)
        return ENOMEM;
    *given = found;
    return 0;
}
