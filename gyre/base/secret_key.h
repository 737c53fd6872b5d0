#pragma once

#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "gyre/base/bytes.h"

namespace gyre {

/// A secret of 32 bytes. Its memory appears in no core dump (MADV_DONTDUMP) and is overwritten when the key is
/// destroyed. A range of bytes, so that it converts to std::span<const std::byte>; a copy has memory of its own. Not
/// thread-safe.
///
/// A fork has a copy of its parent's keys: `gyre agent` serves its shells in forks.
class SecretKey {
 public:
  static constexpr std::size_t kBytes = 32;

  /// Zeros. Error(kResourceExhausted) when there is no memory.
  SecretKey();
  explicit SecretKey(std::span<const std::byte, kBytes> bytes);
  SecretKey(const SecretKey& other);
  SecretKey& operator=(const SecretKey& other);
  ~SecretKey();

  std::byte* data() { return bytes_; }
  const std::byte* data() const { return bytes_; }
  static constexpr std::size_t size() { return kBytes; }
  std::byte* begin() { return bytes_; }
  std::byte* end() { return bytes_ + kBytes; }
  const std::byte* begin() const { return bytes_; }
  const std::byte* end() const { return bytes_ + kBytes; }
  std::byte& operator[](std::size_t index) { return bytes_[index]; }
  const std::byte& operator[](std::size_t index) const { return bytes_[index]; }

  void fill(std::byte value);

  /// Takes the same time whatever differs.
  friend bool operator==(const SecretKey& a, const SecretKey& b);

 private:
  std::byte* const bytes_;
};

/// A key for one purpose: HMAC-SHA256 of `purpose` under `secret`. Nobody who knows one can compute the other, or the
/// key for another purpose.
SecretKey derive_key(std::span<const std::byte> secret, std::string_view purpose);

/// 64 lower-case hexadecimal digits, in ordinary memory: the caller wipes it (WipedAtEnd).
std::string hex_of(const SecretKey& key);
/// The key whose digits these are, in either case; empty for anything else.
std::optional<SecretKey> key_from_hex(std::string_view digits);

/// What is left to read of `fd`, at most `limit_bytes`, in one buffer that never grew and so left no copies behind; the
/// caller wipes it. Error(kIo, kResourceExhausted) names `what`.
Bytes read_secret(int fd, std::size_t limit_bytes, std::string_view what);

/// Overwrites a container of bytes or characters when the scope ends, also by an exception: for buffers through which a
/// key has to pass. The container must not have been moved or reallocated since the key went in.
template <typename Container>
class WipedAtEnd {
 public:
  explicit WipedAtEnd(Container& container) : container_(container) {}
  ~WipedAtEnd() {
    // An empty container may have no memory, and explicit_bzero() takes no null.
    if (!container_.empty()) ::explicit_bzero(container_.data(), container_.size() * sizeof(*container_.data()));
  }
  WipedAtEnd(const WipedAtEnd&) = delete;
  WipedAtEnd& operator=(const WipedAtEnd&) = delete;

 private:
  Container& container_;
};

}  // namespace gyre
