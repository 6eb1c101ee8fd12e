/* A disk that can be slow, can fail, and knows what was synced. Preloaded into the process under test.

   Every sync of a data.mdb (fsync, fdatasync, a write through a descriptor opened with O_DSYNC) passes here.
   With an image directory set, a copy of each file is kept that has only what was synced: a sync copies the
   file, a synchronous write copies its bytes. With a chance set, the images and the files as they are at that moment are
   saved before an operation, as the power cut would find them, with the number of writes acknowledged so far. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int delay_ms, fail_countdown, snapshot_chance, snapshot_count;
static long acknowledged, syncs;
static unsigned int seed = 1;
static char image_dir[PATH_MAX];

void shim_delay_ms(int value) { delay_ms = value; }
void shim_fail_after(int count) { fail_countdown = count + 1; }
void shim_acknowledged(long value) { __atomic_store_n(&acknowledged, value, __ATOMIC_SEQ_CST); }
long shim_syncs(void) { return __atomic_load_n(&syncs, __ATOMIC_SEQ_CST); }
void shim_images(const char* path, unsigned int start) { snprintf(image_dir, sizeof image_dir, "%s", path); seed = start; }
void shim_snapshots(int chance_percent) { snapshot_chance = chance_percent; }

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

/* "log" or "table" for the data file of one of the environments, else NULL. */
static const char* environment_of(int fd) {
    char link[64], path[PATH_MAX];
    ssize_t size;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    size = readlink(link, path, sizeof path - 1);
    if (size <= 0) return NULL;
    path[size] = 0;
    if (size > 13 && strcmp(path + size - 13, "/log/data.mdb") == 0) return "log";
    if (size > 15 && strcmp(path + size - 15, "/table/data.mdb") == 0) return "table";
    return NULL;
}

static void copy_file(int from, const char* to_path) {
    static __thread char buffer[1 << 16];
    int to = open(to_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    off_t at = 0;
    ssize_t size;
    REAL(pwrite);
    while ((size = pread(from, buffer, sizeof buffer, at)) > 0) {
        if (real(to, buffer, (size_t)size, at) != size) abort();
        at += size;
    }
    close(to);
}

static void copy_path(const char* from_path, const char* to_path) {
    int from = open(from_path, O_RDONLY);
    if (from < 0) return;
    copy_file(from, to_path);
    close(from);
}

static int live_fds[2] = {-1, -1};

static void snapshot(void) {
    static const char* names[2] = {"log", "table"};
    char from[PATH_MAX + 64], to[PATH_MAX + 64], live[PATH_MAX + 64];
    long count = __atomic_load_n(&acknowledged, __ATOMIC_SEQ_CST);
    if (snapshot_chance == 0 || rand_r(&seed) % 100 >= snapshot_chance) return;
    snapshot_count++;
    for (int which = 0; which < 2; which++) {
        snprintf(from, sizeof from, "%s/%s", image_dir, names[which]);
        snprintf(to, sizeof to, "%s/cut-%04d-%ld-%s", image_dir, snapshot_count, count, names[which]);
        copy_path(from, to);
        snprintf(live, sizeof live, "%s.live", to);
        if (live_fds[which] >= 0) copy_file(live_fds[which], live);
    }
}

static void before_operation(int fd, const char* environment) {
    if (image_dir[0] == 0) return;
    pthread_mutex_lock(&lock);
    live_fds[strcmp(environment, "table") == 0] = fd;
    snapshot();
    pthread_mutex_unlock(&lock);
}

/* What a sync costs and whether it works: 0, or -1 with errno set. */
static int sync_begins(void) {
    struct timespec pause = {delay_ms / 1000, delay_ms % 1000 * 1000000L};
    __atomic_add_fetch(&syncs, 1, __ATOMIC_SEQ_CST);
    if (delay_ms) nanosleep(&pause, NULL);
    if (fail_countdown > 0 && --fail_countdown == 0) {
        errno = EIO;
        return -1;
    }
    return 0;
}

static void synced_file(int fd, const char* environment) {
    char path[PATH_MAX + 64];
    if (image_dir[0] == 0) return;
    snprintf(path, sizeof path, "%s/%s", image_dir, environment);
    pthread_mutex_lock(&lock);
    copy_file(fd, path);
    pthread_mutex_unlock(&lock);
}

static void synced_bytes(const char* environment, const void* data, size_t size, off_t at) {
    char path[PATH_MAX + 64];
    int to;
    REAL(pwrite);
    if (image_dir[0] == 0) return;
    snprintf(path, sizeof path, "%s/%s", image_dir, environment);
    pthread_mutex_lock(&lock);
    to = open(path, O_WRONLY | O_CREAT, 0600);
    if (real(to, data, size, at) != (ssize_t)size) abort();
    close(to);
    pthread_mutex_unlock(&lock);
}

int fdatasync(int fd) {
    const char* environment = environment_of(fd);
    int code;
    REAL(fdatasync);
    if (environment == NULL) return real(fd);
    before_operation(fd, environment);
    if (sync_begins() != 0) return -1;
    code = real(fd);
    if (code == 0) synced_file(fd, environment);
    return code;
}

int fsync(int fd) {
    const char* environment = environment_of(fd);
    int code;
    REAL(fsync);
    if (environment == NULL) return real(fd);
    before_operation(fd, environment);
    if (sync_begins() != 0) return -1;
    code = real(fd);
    if (code == 0) synced_file(fd, environment);
    return code;
}

int msync(void* address, size_t size, int flags) {
    REAL(msync);
    if (sync_begins() != 0) return -1;
    return real(address, size, flags);
}

static ssize_t write_at(int fd, const void* data, size_t size, off_t at) {
    const char* environment = environment_of(fd);
    ssize_t done;
    REAL(pwrite);
    if (environment == NULL) return real(fd, data, size, at);
    before_operation(fd, environment);
    if (!(fcntl(fd, F_GETFL) & O_DSYNC)) return real(fd, data, size, at);
    if (sync_begins() != 0) return -1;
    done = real(fd, data, size, at);
    if (done > 0) synced_bytes(environment, data, (size_t)done, at);
    return done;
}

ssize_t pwrite(int fd, const void* data, size_t size, off_t at) { return write_at(fd, data, size, at); }
ssize_t pwrite64(int fd, const void* data, size_t size, off64_t at) { return write_at(fd, data, size, at); }

ssize_t writev(int fd, const struct iovec* parts, int count) {
    const char* environment = environment_of(fd);
    REAL(writev);
    if (environment != NULL) before_operation(fd, environment);
    return real(fd, parts, count);
}

ssize_t pwritev(int fd, const struct iovec* parts, int count, off_t at) {
    const char* environment = environment_of(fd);
    REAL(pwritev);
    if (environment != NULL) before_operation(fd, environment);
    return real(fd, parts, count, at);
}
