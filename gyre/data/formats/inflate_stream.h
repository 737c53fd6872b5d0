#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gyre/data/formats/inflate.h"
#include "gyre/data/readable_file.h"

namespace gyre::data {

/// Decompresses a file piece by piece from its beginning, with little memory whatever the size of its contents. Checks
/// what Inflater checks, but for a limit to the contents. Not thread-safe.
class InflateStream {
 public:
  /// Refers to `file`, which must outlive it. `compression`: gzip or zlib.
  InflateStream(const ReadableFile& file, Compression compression);
  ~InflateStream();
  InflateStream(const InflateStream&) = delete;
  InflateStream& operator=(const InflateStream&) = delete;

  /// Fills `into` with what comes next; returns how many bytes that is, fewer only where the contents end. Errors name
  /// the file, and the member and its offset: kCorruptData; those of the file.
  std::size_t read(std::span<std::byte> into);

 private:
  struct State;

  /// Reads more of the file where all was used; false at its end.
  bool refill();
  void begin_member();
  /// Goes on to the next member, or to the end.
  void end_member();
  /// How many there were.
  std::uint64_t skip_zeros();
  [[noreturn]] void throw_corrupt() const;

  const ReadableFile& file_;
  const Compression compression_;
  std::unique_ptr<State> state_;
  std::vector<std::byte> stored_;
  std::uint64_t read_bytes_ = 0;  ///< Of the file.
  std::uint64_t member_offset_ = 0;
  int member_ = 0;
  bool ended_ = false;
};

}  // namespace gyre::data
