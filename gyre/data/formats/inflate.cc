#include "gyre/data/formats/inflate.h"

#include <fmt/format.h>
#include <libdeflate.h>

#include <algorithm>
#include <new>
#include <string>

#include "gyre/base/error.h"

namespace gyre::data {
namespace {

// Deflate cannot make more than 1032 bytes out of one.
constexpr std::uint64_t kMostRatio = 1032;
constexpr std::size_t kLeastOutputBytes = std::size_t{64} << 10;
constexpr std::size_t kGzipTrailerBytes = 8;

std::uint8_t stored_byte(std::span<const std::byte> bytes, std::size_t index) {
  return std::to_integer<std::uint8_t>(bytes[index]);
}

/// What gzip's last four bytes say of the length of the last member, modulo 2^32; a hint and no more. libdeflate begins
/// anew where the memory was too little.
std::uint64_t hinted_size(Compression compression, std::span<const std::byte> stored, std::uint64_t zlib_ratio) {
  if (compression != Compression::kGzip || stored.size() < kGzipTrailerBytes) return stored.size() * zlib_ratio;
  std::uint64_t size = 0;
  for (std::size_t i = 4; i >= 1; --i) size = size << 8 | stored_byte(stored, stored.size() - 5 + i);
  return size;
}

libdeflate_result inflate_with(libdeflate_decompressor* decompressor, Compression compression,
                               std::span<const std::byte> from, std::span<std::byte> into, std::size_t* used,
                               std::size_t* made) {
  auto* const function =
      compression == Compression::kGzip ? libdeflate_gzip_decompress_ex : libdeflate_zlib_decompress_ex;
  return function(decompressor, from.data(), from.size(), into.data(), into.size(), used, made);
}

bool is_padding(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

}  // namespace

Compression sniff_compression(std::span<const std::byte> first) {
  if (first.size() < 2) return Compression::kNone;
  const std::uint8_t low = stored_byte(first, 0);
  const std::uint8_t high = stored_byte(first, 1);
  if (low == 0x1f && high == 0x8b) return Compression::kGzip;
  // RFC 1950: method 8, a window of at most 32 KB, no preset dictionary, and a multiple of 31.
  const bool is_zlib = (low & 0x0f) == 8 && low >> 4 <= 7 && (high & 0x20) == 0 && (low * 256 + high) % 31 == 0;
  return is_zlib ? Compression::kZlib : Compression::kNone;
}

/// Where the contents go: memory that grows, up to a limit.
class Inflater::Output {
 public:
  Output(ScratchBuffer& buffer, std::uint64_t first_bytes, std::uint64_t most_bytes, std::string_view name)
      : buffer_(buffer), most_bytes_(most_bytes), name_(name) {
    space_ = buffer_.take(static_cast<std::size_t>(std::min(first_bytes, most_bytes)));
  }

  std::span<std::byte> free() const { return space_.subspan(used_); }
  void add(std::size_t bytes) { used_ += bytes; }
  std::span<const std::byte> result() const { return space_.first(used_); }
  std::string_view name() const { return name_; }

  void grow() {
    if (space_.size() >= most_bytes_) {
      throw Error(ErrorCode::kResourceExhausted,
                  fmt::format("{} holds more than {} when it is decompressed, which is the limit", name_,
                              format_bytes(most_bytes_)));
    }
    const std::uint64_t larger = std::max<std::uint64_t>(space_.size() * 2, kLeastOutputBytes);
    space_ = buffer_.grow(static_cast<std::size_t>(std::min(larger, most_bytes_)), used_);
  }

 private:
  ScratchBuffer& buffer_;
  std::uint64_t most_bytes_;
  std::string_view name_;
  std::span<std::byte> space_;
  std::size_t used_ = 0;
};

Inflater::Inflater()
    : decompressor_(libdeflate_alloc_decompressor(), [](void* decompressor) {
        libdeflate_free_decompressor(static_cast<libdeflate_decompressor*>(decompressor));
      }) {
  if (!decompressor_) throw std::bad_alloc();
}

Inflater::~Inflater() = default;
Inflater::Inflater(Inflater&&) noexcept = default;
Inflater& Inflater::operator=(Inflater&&) noexcept = default;

void Inflater::inflate_member(Compression compression, std::span<const std::byte>& left, Output& output) const {
  auto* const decompressor = static_cast<libdeflate_decompressor*>(decompressor_.get());
  for (;;) {
    std::size_t used = 0;
    std::size_t made = 0;
    const auto result = inflate_with(decompressor, compression, left, output.free(), &used, &made);
    if (result == LIBDEFLATE_INSUFFICIENT_SPACE) {
      output.grow();
      continue;
    }
    if (result != LIBDEFLATE_SUCCESS) {
      throw Error(ErrorCode::kCorruptData, "the compressed data are damaged or end too early");
    }
    output.add(made);
    left = left.subspan(used);
    return;
  }
}

std::span<const std::byte> Inflater::inflate(Compression compression, std::span<const std::byte> stored,
                                             std::uint64_t most_bytes, std::string_view name, ScratchBuffer& buffer) {
  if (compression == Compression::kNone) return stored;
  const std::uint64_t hint = std::max<std::uint64_t>(hinted_size(compression, stored, zlib_ratio_), 1);
  Output output(buffer, std::min(hint, stored.size() * kMostRatio), most_bytes, name);
  std::span<const std::byte> left = stored;
  for (int member = 1; member == 1 || !is_padding(left); ++member) {
    const std::size_t offset = stored.size() - left.size();
    try {
      inflate_member(compression, left, output);
    } catch (Error& error) {
      if (error.code() != ErrorCode::kCorruptData) throw;
      throw Error(error.code(),
                  fmt::format("{}: {} (in the {} member that begins at byte {}, number {})", name, error.what(),
                              compression == Compression::kGzip ? "gzip" : "zlib", offset, member));
    }
    if (compression == Compression::kZlib && !is_padding(left)) {
      throw Error(ErrorCode::kCorruptData, fmt::format("{}: {} bytes follow the end of the zlib data at byte {}", name,
                                                       left.size(), stored.size() - left.size()));
    }
  }
  if (compression == Compression::kZlib)
    zlib_ratio_ = output.result().size() / std::max<std::size_t>(stored.size(), 1) + 1;
  return output.result();
}

Bytes deflate(Compression compression, std::span<const std::byte> contents, int level) {
  if (compression == Compression::kNone) return {contents.begin(), contents.end()};
  const std::unique_ptr<libdeflate_compressor, void (*)(libdeflate_compressor*)> compressor(
      libdeflate_alloc_compressor(level), libdeflate_free_compressor);
  if (!compressor) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("compression level {} is not 1 to 12", level));
  }
  const bool gzip = compression == Compression::kGzip;
  const std::size_t bound = gzip ? libdeflate_gzip_compress_bound(compressor.get(), contents.size())
                                 : libdeflate_zlib_compress_bound(compressor.get(), contents.size());
  Bytes result(bound);
  auto* const function = gzip ? libdeflate_gzip_compress : libdeflate_zlib_compress;
  result.resize(function(compressor.get(), contents.data(), contents.size(), result.data(), result.size()));
  return result;
}

}  // namespace gyre::data
