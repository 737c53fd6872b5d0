#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace gyre::net::http {

/// Bytes first..last of a representation, both included.
struct ByteRange {
  std::uint64_t first;
  std::uint64_t last;

  std::uint64_t bytes() const { return last - first + 1; }
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

constexpr std::size_t kMostRanges = 16;

/// The ranges that a Range header asks for, of something that has `size` bytes, in the order of the header:
/// "bytes=0-9", "bytes=10-", "bytes=-5", several separated by commas; cut to what there is. Empty when the header is in
/// another unit than bytes: the whole is to be sent. HttpError(416) when it is malformed, asks for more than
/// kMostRanges or for overlapping ranges, or when none of them exists. RFC 9110, 14.1 and 14.2.
std::vector<ByteRange> parse_ranges(std::string_view header, std::uint64_t size);

}  // namespace gyre::net::http
