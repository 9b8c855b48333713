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
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <system_error>
#include <unistd.h>

namespace penstock {

// A mapping of a memfd. Every process that maps the same descriptor sees the same bytes, at its own address.
class Arena {
 public:
  static Arena create(size_t nbytes) {
    if (nbytes == 0) throw std::invalid_argument("an arena needs at least 1 byte, found nbytes=0");
    // Refused here: reserving more than the machine has would succeed, and the kernel would kill a process later.
    if (nbytes > memory_of_this_machine()) fail(ENOSPC, "reserving " + std::to_string(nbytes) + " bytes for an arena");
    const int fd = memfd_create("penstock-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) fail(errno, "memfd_create");
    Arena arena(fd);  // owns the descriptor from here on
    if (ftruncate(fd, static_cast<off_t>(nbytes)) != 0) fail(errno, "sizing an arena");
    arena.map(nbytes);
    arena.populate_huge();
    arena.reserve();
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) fail(errno, "sealing an arena");
    return arena;
  }

  // The same in a file without a name: its bytes lie on the disk of `directory`, and in memory as long as there is room.
  static Arena create_on_disk(const std::string& directory, size_t nbytes) {
    if (nbytes == 0) throw std::invalid_argument("an arena needs at least 1 byte, found nbytes=0");
    const int fd = open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) fail(errno, "making an anonymous file in " + directory);
    Arena arena(fd);
    struct statvfs disk {};
    // A reservation that is too large would first use up the disk for all other processes.
    if (fstatvfs(fd, &disk) == 0 && nbytes / disk.f_frsize >= disk.f_bavail) {
      fail(ENOSPC, "reserving " + std::to_string(nbytes) + " bytes on the disk of " + directory + ", which has " +
                       std::to_string(uint64_t{disk.f_bavail} * disk.f_frsize) + " left");
    }
    arena.nbytes_ = nbytes;
    arena.reserve();
    arena.map(nbytes);
    return arena;
  }

  // Takes ownership of `fd`, even if it throws.
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

  // Pages of 2 MiB spare most of the address translations of random access. The kernel makes them only when the memory
  // is touched through a mapping that asked for them; where it cannot, reserve() takes small ones.
  void populate_huge() {
    if (madvise(base_, nbytes_, MADV_HUGEPAGE) == 0) madvise(base_, nbytes_, kPopulateWrite);
  }

  void reserve() {
    int error = 0;
    do {
      error = posix_fallocate(fd_, 0, static_cast<off_t>(nbytes_));
    } while (error == EINTR);
    if (error != 0) {
      fail(error == ENOMEM ? ENOSPC : error, "reserving " + std::to_string(nbytes_) + " bytes for an arena");
    }
  }

  static uint64_t memory_of_this_machine() {
    struct sysinfo info {};
    sysinfo(&info);
    return (uint64_t{info.totalram} + info.totalswap) * info.mem_unit;
  }

  [[noreturn]] static void fail(int error, const std::string& doing) {
    throw std::system_error(error, std::generic_category(), doing);
  }

  static constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, of Linux 5.14; older C libraries do not name it

  int fd_ = -1;
  std::byte* base_ = nullptr;
  size_t nbytes_ = 0;
};

}  // namespace penstock
