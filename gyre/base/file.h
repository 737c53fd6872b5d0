#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "gyre/base/bytes.h"

namespace gyre {

/// Owns a file descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  ~UniqueFd() { reset(); }
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset();

 private:
  int fd_ = -1;
};

/// The whole file. Errors name the path; a file larger than `limit_bytes` is Error(kResourceExhausted).
Bytes read_file(const std::filesystem::path& path, std::uint64_t limit_bytes);

/// Writes all of `bytes` or throws Error (kIo, kResourceExhausted on a full disk) naming `what`.
void write_all(int fd, std::span<const std::byte> bytes, std::string_view what);

/// After this returns the file holds exactly `bytes`, on disk; when it throws, the old file (if there
/// was one) is untouched and no temporary is left. Readers never see a part. Not for concurrent
/// writers of one path.
void write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes);

}  // namespace gyre
