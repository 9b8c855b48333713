// One anonymous block of shared memory, sized once and never resized.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <system_error>
#include <unistd.h>

namespace penstock {

// A mapping of a memfd. Every process that maps the same descriptor sees the same bytes, at its own address.
class Arena {
 public:
  static Arena create(size_t nbytes) {
    if (nbytes == 0) throw std::invalid_argument("an arena needs at least 1 byte, found nbytes=0");
    // Reserving more than the machine has would not fail: the kernel would first kill somebody. Refuse it outright.
    if (nbytes > memory_of_this_machine()) fail(ENOSPC, "reserving " + std::to_string(nbytes) + " bytes for an arena");
    const int fd = memfd_create("penstock-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) fail(errno, "memfd_create");
    Arena arena(fd);  // owns the descriptor from here on
    int error = 0;
    do {
      error = posix_fallocate(fd, 0, static_cast<off_t>(nbytes));
    } while (error == EINTR);
    if (error != 0) {
      fail(error == ENOMEM ? ENOSPC : error, "reserving " + std::to_string(nbytes) + " bytes for an arena");
    }
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) fail(errno, "sealing an arena");
    arena.map(nbytes);
    return arena;
  }

  // Takes ownership of `fd`, also when it throws.
  static Arena attach(int fd) {
    Arena arena(fd);
    struct stat status {};
    if (fstat(fd, &status) != 0) {
      arena.fd_ = -1;  // not a descriptor: nothing to close
      fail(errno, "attaching an arena to descriptor " + std::to_string(fd));
    }
    if (status.st_size <= 0) {
      throw std::invalid_argument("descriptor " + std::to_string(fd) + " is no arena: it holds no bytes");
    }
    arena.map(static_cast<size_t>(status.st_size));
    return arena;
  }

  Arena(Arena&& other) noexcept : fd_(other.fd_), base_(other.base_), nbytes_(other.nbytes_) {
    other.fd_ = -1;
    other.base_ = nullptr;
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  Arena& operator=(Arena&&) = delete;

  ~Arena() {
    if (base_ != nullptr) munmap(base_, nbytes_);
    if (fd_ >= 0) close(fd_);
  }

  int fd() const { return fd_; }
  size_t nbytes() const { return nbytes_; }
  std::byte* base() const { return base_; }

 private:
  explicit Arena(int fd) : fd_(fd) {}

  void map(size_t nbytes) {
    void* base = mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (base == MAP_FAILED) fail(errno, "mapping an arena of " + std::to_string(nbytes) + " bytes");
    base_ = static_cast<std::byte*>(base);
    nbytes_ = nbytes;
  }

  static uint64_t memory_of_this_machine() {
    struct sysinfo info {};
    sysinfo(&info);
    return (uint64_t{info.totalram} + info.totalswap) * info.mem_unit;
  }

  [[noreturn]] static void fail(int error, const std::string& doing) {
    throw std::system_error(error, std::generic_category(), doing);
  }

  int fd_ = -1;
  std::byte* base_ = nullptr;
  size_t nbytes_ = 0;
};

}  // namespace penstock
