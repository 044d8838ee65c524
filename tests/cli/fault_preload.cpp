// SPDX-License-Identifier: Apache-2.0
// A library for tests alone, which the dynamic linker loads before others (LD_PRELOAD): makes one
// system call on files below a folder fail, or fall short, or one large allocation.
//   BALLAST_FAULT_FOLDER   the folder, absolute
//   BALLAST_FAULT_AT       the number of the call, from 1; 0: none, calls are counted only
//   BALLAST_FAULT_KIND     fail: this call; stays: this call and all later ones; short: this call,
//                          if it is a write of several bytes, writes half of them
//   BALLAST_FAULT_ERRNO    what a failing call says
//   BALLAST_FAULT_MEMORY   the number of the large allocation that gets nothing; 0: none
//   BALLAST_FAULT_LARGE    from how many bytes on an allocation is large, 64 KiB if it is not there
//   BALLAST_FAULT_COUNTS   a file that gets "CALLS ALLOCATIONS" at the end, and the names of calls
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr size_t kNames = 1 << 20;

// Read once, when main begins; before that nothing is counted.
struct Plan {
  char folder[PATH_MAX] = {};
  size_t folder_size = 0;
  long at = 0, memory = 0;
  size_t large = 64 << 10;
  int error = EIO;
  bool stays = false, is_short = false;
  char counts[PATH_MAX] = {};
};
Plan plan;
std::atomic<bool> started = false;
std::atomic<long> calls = 0, allocations = 0;
char names[kNames];
std::atomic<size_t> names_size = 0;

long number_of(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atol(text);
}

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

bool is_below(const char* path) {
  if (path[0] == '/')
    return std::strncmp(path, plan.folder, plan.folder_size) == 0 && path[plan.folder_size] == '/';
  char here[PATH_MAX];
  if (::getcwd(here, sizeof(here)) == nullptr) return false;
  return std::strncmp(here, plan.folder, plan.folder_size) == 0;
}

bool is_below(int fd) {
  char link[64], path[PATH_MAX];
  std::snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t size = ::readlink(link, path, sizeof(path) - 1);
  if (size <= 0) return false;
  path[size] = '\0';
  return path[0] == '/' && is_below(path);
}

enum class Fate { kRuns, kFails, kFallsShort };

template <typename Place>
Fate fate_of(const char* name, Place place) {
  if (!started || plan.folder_size == 0 || !is_below(place)) return Fate::kRuns;
  const long number = ++calls;
  const size_t size = std::strlen(name) + 1, at = names_size.fetch_add(size);
  if (at + size < kNames) {
    std::memcpy(names + at, name, size - 1);
    names[at + size - 1] = ' ';
  }
  if (plan.at == 0 || number < plan.at || (number > plan.at && !plan.stays)) return Fate::kRuns;
  if (plan.is_short) return Fate::kFallsShort;
  errno = plan.error;
  return Fate::kFails;
}

bool is_denied(size_t size) {
  if (!started || size < plan.large) return false;
  return ++allocations == plan.memory;
}

void tell_counts() {
  started = false;
  if (plan.counts[0] == '\0') return;
  const int fd = ::open(plan.counts, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd < 0) return;
  ::dprintf(fd, "%ld %ld\n%.*s\n", calls.load(), allocations.load(),
            static_cast<int>(names_size.load() < kNames ? names_size.load() : kNames), names);
  ::close(fd);
}

int (*real_main)(int, char**, char**);

int main_with_faults(int argc, char** argv, char** environment) {
  if (const char* folder = std::getenv("BALLAST_FAULT_FOLDER")) {
    std::strncpy(plan.folder, folder, sizeof(plan.folder) - 1);
    plan.folder_size = std::strlen(plan.folder);
  }
  if (const char* counts = std::getenv("BALLAST_FAULT_COUNTS"))
    std::strncpy(plan.counts, counts, sizeof(plan.counts) - 1);
  plan.at = number_of("BALLAST_FAULT_AT");
  plan.memory = number_of("BALLAST_FAULT_MEMORY");
  if (const long large = number_of("BALLAST_FAULT_LARGE"); large > 0)
    plan.large = static_cast<size_t>(large);
  if (const long error = number_of("BALLAST_FAULT_ERRNO"); error != 0)
    plan.error = static_cast<int>(error);
  if (const char* kind = std::getenv("BALLAST_FAULT_KIND")) {
    plan.stays = std::strcmp(kind, "stays") == 0;
    plan.is_short = std::strcmp(kind, "short") == 0;
  }
  std::atexit(tell_counts);
  started = true;
  return real_main(argc, argv, environment);
}

}  // namespace

extern "C" {

int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, void (*init)(),
                      void (*fini)(), void (*rtld_fini)(), void* stack_end) {
  using Start =
      int(int (*)(int, char**, char**), int, char**, void (*)(), void (*)(), void (*)(), void*);
  real_main = main;
  return next<Start>("__libc_start_main")(main_with_faults, argc, argv, init, fini, rtld_fini,
                                          stack_end);
}

ssize_t write(int fd, const void* data, size_t size) {
  static auto* const real = next<ssize_t(int, const void*, size_t)>("write");
  const Fate fate = fate_of("write", fd);
  if (fate == Fate::kFails) return -1;
  return real(fd, data, fate == Fate::kFallsShort && size > 1 ? size / 2 : size);
}

ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  static auto* const real = next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  const Fate fate = fate_of("pwrite", fd);
  if (fate == Fate::kFails) return -1;
  return real(fd, data, fate == Fate::kFallsShort && size > 1 ? size / 2 : size, offset);
}
ssize_t pwrite64(int fd, const void* data, size_t size, off64_t offset) {
  return pwrite(fd, data, size, offset);
}

int fsync(int fd) {
  static auto* const real = next<int(int)>("fsync");
  return fate_of("fsync", fd) == Fate::kFails ? -1 : real(fd);
}
int ftruncate(int fd, off_t size) noexcept {
  static auto* const real = next<int(int, off_t)>("ftruncate");
  return fate_of("ftruncate", fd) == Fate::kFails ? -1 : real(fd, size);
}

int rename(const char* from, const char* to) noexcept {
  static auto* const real = next<int(const char*, const char*)>("rename");
  return fate_of("rename", to) == Fate::kFails ? -1 : real(from, to);
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned flags) noexcept {
  static auto* const real = next<int(int, const char*, int, const char*, unsigned)>("renameat2");
  if (fate_of("renameat2", to) == Fate::kFails) return -1;
  return real(from_folder, from, to_folder, to, flags);
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  static auto* const real = next<int(int, const char*, int)>("unlinkat");
  const Fate fate = folder == AT_FDCWD ? fate_of("unlinkat", path) : fate_of("unlinkat", folder);
  return fate == Fate::kFails ? -1 : real(folder, path, flags);
}

int mkdir(const char* path, mode_t mode) noexcept {
  static auto* const real = next<int(const char*, mode_t)>("mkdir");
  return fate_of("mkdir", path) == Fate::kFails ? -1 : real(path, mode);
}

int open(const char* path, int flags, ...) {
  static auto* const real = next<int(const char*, int, ...)>("open");
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if (fate_of((flags & O_CREAT) != 0 ? "create" : "open", path) == Fate::kFails) return -1;
  return real(path, flags, mode);
}

void* mmap(void* address, size_t size, int protection, int flags, int fd, off_t offset) noexcept {
  static auto* const real = next<void*(void*, size_t, int, int, int, off_t)>("mmap");
  if (fd >= 0 && fate_of("mmap", fd) == Fate::kFails) return MAP_FAILED;
  return real(address, size, protection, flags, fd, offset);
}

// glibc's own, so that no dlsym, which allocates, is needed here.
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t size) {
  return is_denied(size) ? (errno = ENOMEM, nullptr) : __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  return is_denied(count * size) ? (errno = ENOMEM, nullptr) : __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) {
  return is_denied(size) ? (errno = ENOMEM, nullptr) : __libc_realloc(old, size);
}
void* memalign(size_t alignment, size_t size) {
  return is_denied(size) ? (errno = ENOMEM, nullptr) : __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void** result, size_t alignment, size_t size) {
  if (is_denied(size)) return ENOMEM;
  void* const memory = __libc_memalign(alignment, size);
  if (memory == nullptr) return ENOMEM;
  *result = memory;
  return 0;
}

}  // extern "C"
