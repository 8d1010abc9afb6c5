// SPDX-License-Identifier: MIT
// A library for LD_PRELOAD that stands before libc, for run_faults.py and crash_images.py:
//   NIBBLE_FAULT=write:17:28     the 17th write (of a file, not of the standard streams) fails with
//                                errno 28; kinds are the names in kKinds
//   NIBBLE_FAULT=memory:17:12    from the 17th allocation on there is no memory but what is freed
//   NIBBLE_FAULT_COUNTS=FILE     at the end, how often each kind was called
//   NIBBLE_RECORD=FILE           every call that changes files, with its data, for a replay
// Plain C on purpose: what is interposed here must not be called from here.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <initializer_list>

namespace {

enum Kind {
  k_open,
  k_write,
  k_fsync,
  k_rename,
  k_mmap,
  k_clone,
  k_malloc,
  k_mkdir,
  k_unlink,
  k_flock,
  k_space,
  k_memory,
  k_kinds
};
const char* const kKinds[] = {"open",   "write", "fsync",  "rename", "mmap",  "clone",
                              "malloc", "mkdir", "unlink", "flock",  "space", "memory"};

long g_count[k_kinds];
int g_kind = -1, g_errno = 0, g_record = -1;
long g_nth = 0;
char g_counts_file[1024];
pthread_mutex_t g_record_mutex = PTHREAD_MUTEX_INITIALIZER;

template <class F>
F next(F, const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}
#define NEXT(name) static const auto real = next(&name, #name)

void write_counts() {
  if (!g_counts_file[0]) return;
  const int fd = int(
      syscall(SYS_openat, AT_FDCWD, g_counts_file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  char line[64];
  for (int i = 0; i < k_kinds; ++i) {
    const int n = snprintf(line, sizeof line, "%s %ld\n", kKinds[i], g_count[i]);
    syscall(SYS_write, fd, line, size_t(n));
  }
  syscall(SYS_close, fd);
}

__attribute__((constructor)) void begin() {
  if (const char* fault = getenv("NIBBLE_FAULT")) {
    char kind[32] = {};
    if (sscanf(fault, "%31[a-z]:%ld:%d", kind, &g_nth, &g_errno) == 3) {
      for (int i = 0; i < k_kinds; ++i) {
        if (strcmp(kind, kKinds[i]) == 0) g_kind = i;
      }
    }
  }
  if (const char* file = getenv("NIBBLE_FAULT_COUNTS")) {
    strncpy(g_counts_file, file, sizeof g_counts_file - 1);
    atexit(write_counts);
  }
  if (const char* file = getenv("NIBBLE_RECORD")) {
    g_record =
        int(syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  }
  for (const char* name : {"NIBBLE_FAULT", "NIBBLE_FAULT_COUNTS", "NIBBLE_RECORD", "LD_PRELOAD"}) {
    unsetenv(name);  // of this program alone, not of what it starts
  }
}

bool g_main = false;  // what is allocated before it cannot be answered by the program
int (*g_real_main)(int, char**, char**);
int main_begins(int argc, char** argv, char** env) {
  g_main = true;
  return g_real_main(argc, argv, env);
}

bool fails(Kind kind) {
  if (!g_main) return false;
  const long n = __atomic_add_fetch(&g_count[kind], 1, __ATOMIC_RELAXED);
  if (kind != g_kind || n != g_nth) return false;
  errno = g_errno;
  return true;
}

// Memory as it is when it runs out: what was freed since can be had again, and nothing else.
long g_free_bytes = 0;
bool g_exhausted = false;

bool no_memory(size_t size, void* instead_of = nullptr) {
  if (fails(k_malloc)) return true;
  if (!g_main) return false;
  if (fails(k_memory)) __atomic_store_n(&g_exhausted, true, __ATOMIC_RELAXED);
  if (!__atomic_load_n(&g_exhausted, __ATOMIC_RELAXED)) return false;
  // An allocation takes its header and what its size is rounded up by, too.
  const long more = long(size) + 32 - long(instead_of ? malloc_usable_size(instead_of) : 0);
  if (more <= 0) return false;
  if (__atomic_sub_fetch(&g_free_bytes, more, __ATOMIC_RELAXED) >= 0) return false;
  __atomic_add_fetch(&g_free_bytes, more, __ATOMIC_RELAXED);
  errno = ENOMEM;
  return true;
}

void was_freed(void* p) {
  if (!p || !__atomic_load_n(&g_exhausted, __ATOMIC_RELAXED)) return;
  __atomic_add_fetch(&g_free_bytes, long(malloc_usable_size(p)), __ATOMIC_RELAXED);
}

bool is_file(int fd) {
  struct stat st;
  return fd > 2 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

// Of what is open: device and inode tell files apart whatever their names.
void inode(int fd, char* out, size_t n) {
  struct stat st;
  if (fstat(fd, &st) != 0) memset(&st, 0, sizeof st);
  snprintf(out, n, "%lu", static_cast<unsigned long>(st.st_ino));
}

// One record: "op\0a\0b\0", a number of data bytes, the data.
void record(const char* op, const char* a, const char* b, const void* data, size_t size) {
  if (g_record < 0) return;
  const int saved = errno;
  static char head[16384];
  pthread_mutex_lock(&g_record_mutex);
  const int n = snprintf(head, sizeof head, "%s%c%s%c%s%c%zu%c", op, 0, a, 0, b, 0, size, 0);
  syscall(SYS_write, g_record, head, size_t(n));
  for (size_t done = 0; done < size;) {
    const long w = syscall(SYS_write, g_record, static_cast<const char*>(data) + done, size - done);
    if (w <= 0) break;
    done += size_t(w);
  }
  pthread_mutex_unlock(&g_record_mutex);
  errno = saved;
}

void record_open(int fd, const char* path, int flags) {
  if (g_record < 0 || fd < 0 || !is_file(fd)) return;
  char ino[32];
  inode(fd, ino, sizeof ino);
  if (flags & O_CREAT) record("create", path, ino, nullptr, 0);
  if (flags & O_TRUNC) record("truncate", ino, "0", nullptr, 0);
}

void record_write(int fd, const void* data, ssize_t size, off_t at) {
  if (g_record < 0 || size <= 0 || !is_file(fd)) return;
  char ino[32], offset[32];
  inode(fd, ino, sizeof ino);
  snprintf(offset, sizeof offset, "%lld", static_cast<long long>(at));
  record("write", ino, offset, data, size_t(size));
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

#define OPEN_BODY(name, ...)                     \
  mode_t mode = 0;                               \
  if (flags & (O_CREAT | O_TMPFILE)) {           \
    va_list list;                                \
    va_start(list, flags);                       \
    mode = va_arg(list, mode_t);                 \
    va_end(list);                                \
  }                                              \
  if (fails(k_open)) return -1;                  \
  static const auto real = next(&name, #name);   \
  const int fd = real(__VA_ARGS__, flags, mode); \
  record_open(fd, path, flags);                  \
  return fd;

int open(const char* path, int flags, ...) { OPEN_BODY(open, path) }
int open64(const char* path, int flags, ...) { OPEN_BODY(open64, path) }
int openat(int at, const char* path, int flags, ...){OPEN_BODY(openat, at, path)}
#define FOPEN_BODY(name)                                                               \
  if (fails(k_open)) return nullptr;                                                   \
  NEXT(name);                                                                          \
  FILE* const file = real(path, mode);                                                 \
  const int flags = mode[0] == 'w' ? O_CREAT | O_TRUNC : mode[0] == 'a' ? O_CREAT : 0; \
  if (file) record_open(fileno(file), path, flags);                                    \
  return file;

FILE* fopen(const char* path, const char* mode){
    FOPEN_BODY(fopen)} FILE* fopen64(const char* path, const char* mode){FOPEN_BODY(fopen64)}

ssize_t write(int fd, const void* data, size_t size) {
  if (is_file(fd) && fails(k_write)) return -1;
  NEXT(write);
  const int flags = g_record >= 0 ? fcntl(fd, F_GETFL) : 0;
  struct stat st;
  off_t at = g_record >= 0 ? lseek(fd, 0, SEEK_CUR) : 0;
  if ((flags & O_APPEND) && fstat(fd, &st) == 0) at = st.st_size;
  const ssize_t n = real(fd, data, size);
  record_write(fd, data, n, at);
  return n;
}

ssize_t pwrite(int fd, const void* data, size_t size, off_t at) {
  if (fails(k_write)) return -1;
  NEXT(pwrite);
  const ssize_t n = real(fd, data, size, at);
  record_write(fd, data, n, at);
  return n;
}
ssize_t pwrite64(int fd, const void* data, size_t size, off64_t at) {
  if (fails(k_write)) return -1;
  NEXT(pwrite64);
  const ssize_t n = real(fd, data, size, at);
  record_write(fd, data, n, at);
  return n;
}

int fsync(int fd) {
  if (fails(k_fsync)) return -1;
  NEXT(fsync);
  const int result = real(fd);
  if (g_record >= 0 && result == 0) {
    char ino[32], path[4096] = {}, link[64];
    inode(fd, ino, sizeof ino);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) < 0) path[0] = 0;
    record(is_file(fd) ? "fsync" : "fsyncdir", is_file(fd) ? ino : path, "", nullptr, 0);
  }
  return result;
}

int rename(const char* from, const char* to) {
  if (fails(k_rename)) return -1;
  NEXT(rename);
  const int result = real(from, to);
  if (result == 0) record("rename", from, to, nullptr, 0);
  return result;
}

int renameat2(int a, const char* from, int b, const char* to, unsigned flags) {
  if (fails(k_rename)) return -1;
  NEXT(renameat2);
  const int result = real(a, from, b, to, flags);
  if (result == 0) record(flags & RENAME_EXCHANGE ? "exchange" : "rename", from, to, nullptr, 0);
  return result;
}

int mkdir(const char* path, mode_t mode) {
  if (fails(k_mkdir)) return -1;
  NEXT(mkdir);
  const int result = real(path, mode);
  if (result == 0) record("mkdir", path, "", nullptr, 0);
  return result;
}

int unlink(const char* path) {
  if (fails(k_unlink)) return -1;
  NEXT(unlink);
  const int result = real(path);
  if (result == 0) record("unlink", path, "", nullptr, 0);
  return result;
}

int remove(const char* path) {
  if (fails(k_unlink)) return -1;
  NEXT(remove);
  const int result = real(path);
  if (result == 0) record("unlink", path, "", nullptr, 0);
  return result;
}

int unlinkat(int at, const char* path, int flags) {
  if (fails(k_unlink)) return -1;
  NEXT(unlinkat);
  char whole[8192], link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", at);
  const ssize_t n = at == AT_FDCWD || path[0] == '/' ? 0 : readlink(link, whole, 4000);
  if (n > 0) {
    snprintf(whole + n, sizeof whole - size_t(n), "/%s", path);
  } else {
    snprintf(whole, sizeof whole, "%s", path);
  }
  const int result = real(at, path, flags);
  if (result == 0) record("unlink", whole, "", nullptr, 0);
  return result;
}

int ftruncate(int fd, off_t size) noexcept {
  NEXT(ftruncate);
  const int result = real(fd, size);
  if (g_record >= 0 && result == 0) {
    char ino[32], text[32];
    inode(fd, ino, sizeof ino);
    snprintf(text, sizeof text, "%lld", static_cast<long long>(size));
    record("truncate", ino, text, nullptr, 0);
  }
  return result;
}

int flock(int fd, int operation) noexcept {
  if (fails(k_flock)) return -1;
  return int(syscall(SYS_flock, fd, operation));
}

void* mmap(void* at, size_t size, int prot, int flags, int fd, off_t offset) noexcept {
  if (fails(k_mmap)) return MAP_FAILED;
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, size, prot, flags, fd, offset));
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attr, void* (*body)(void*),
                   void* arg) noexcept {
  if (fails(k_clone)) return g_errno;
  NEXT(pthread_create);
  return real(thread, attr, body, arg);
}

int statvfs(const char* path, struct statvfs* out) noexcept {
  NEXT(statvfs);
  const int result = real(path, out);
  if (fails(k_space)) out->f_bavail = out->f_bfree = 16;
  return result;
}

int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, void (*init)(),
                      void (*fini)(), void (*rtld_fini)(), void* stack_end) {
  NEXT(__libc_start_main);
  g_real_main = main;
  return real(main_begins, argc, argv, init, fini, rtld_fini, stack_end);
}

void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);
void* malloc(size_t size) noexcept { return no_memory(size) ? nullptr : __libc_malloc(size); }
void* calloc(size_t n, size_t size) noexcept {
  return no_memory(n * size) ? nullptr : __libc_calloc(n, size);
}
void* realloc(void* p, size_t size) noexcept {
  return no_memory(size, p) ? nullptr : __libc_realloc(p, size);
}
void* aligned_alloc(size_t alignment, size_t size) noexcept {
  return no_memory(size) ? nullptr : __libc_memalign(alignment, size);
}
int posix_memalign(void** out, size_t alignment, size_t size) noexcept {
  if (no_memory(size)) return ENOMEM;
  *out = __libc_memalign(alignment, size);
  return *out ? 0 : ENOMEM;
}
void free(void* p) noexcept {
  was_freed(p);
  __libc_free(p);
}

}  // extern "C"
#pragma GCC visibility pop
