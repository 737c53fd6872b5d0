#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "gyre/base/error.h"

namespace gyre::store::node {

/// Who asked does not take the bytes. No fault of those who give them.
class ReaderGone : public Error {
 public:
  explicit ReaderGone(const Error& cause) : Error(cause) {}
};

/// Whoever waits for bytes. Either function may throw an Error, which ends the reading as ReaderGone.
struct WaitingReader {
  /// Called about once a second while nothing arrives.
  std::function<void()> still_waiting;
  /// Takes the next bytes, which are good only until it returns.
  std::function<void(std::span<const std::byte>)> arrived;
};

/// A range of a chunk on its way to a reader. Bytes are handed on as soon as they are there, while those behind them
/// are still being read, decrypted or sent; where a source of them fails, another one goes on from there.
class Reading {
 public:
  /// So much is handed on at a time: it stays in the processor's cache from one step to the next.
  static constexpr std::size_t kPieceBytes = std::size_t{128} << 10;

  /// `buffer`, which outlives it, as `reader` does, is filled from its beginning again when it is full.
  Reading(std::uint64_t offset_bytes, std::uint64_t size_bytes, std::span<std::byte> buffer,
          const WaitingReader& reader)
      : offset_bytes_(offset_bytes), left_bytes_(size_bytes), buffer_(buffer), reader_(reader) {}

  std::uint64_t offset_bytes() const { return offset_bytes_; }
  std::uint64_t left_bytes() const { return left_bytes_; }

  /// Where the next bytes go; not empty as long as bytes are left.
  std::span<std::byte> next() const {
    const auto room = buffer_.subspan(used_bytes_);
    return room.first(static_cast<std::size_t>(std::min<std::uint64_t>({room.size(), left_bytes_, kPieceBytes})));
  }
  /// They are there. Error: ReaderGone.
  void arrived(std::span<const std::byte> bytes) {
    try {
      reader_.arrived(bytes);
    } catch (const Error& error) {
      throw ReaderGone(error);
    }
    offset_bytes_ += bytes.size();
    left_bytes_ -= bytes.size();
    used_bytes_ = (used_bytes_ + bytes.size()) % buffer_.size();
  }
  /// Error: ReaderGone.
  void still_waiting() const {
    try {
      reader_.still_waiting();
    } catch (const Error& error) {
      throw ReaderGone(error);
    }
  }

 private:
  std::uint64_t offset_bytes_;
  std::uint64_t left_bytes_;
  std::span<std::byte> buffer_;
  std::size_t used_bytes_ = 0;
  const WaitingReader& reader_;
};

}  // namespace gyre::store::node
