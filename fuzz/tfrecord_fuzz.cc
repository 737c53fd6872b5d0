// Whatever a file holds, reading its records ends with bytes of the file or with a gyre::Error; compressed or not. What
// is inflated as a whole and what is inflated in pieces are the same.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "gyre/base/check.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/data/formats/tfrecord.h"
#include "gyre/data/tar_test_support.h"

namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{16} << 20;

/// Nothing where it is not a compressed file of records.
std::optional<std::uint64_t> count_in_pieces(std::span<const std::byte> stored) {
  const auto compression = gyre::data::tfrecord_compression(stored);
  if (compression == gyre::data::Compression::kNone) return std::nullopt;
  const gyre::data::testing::MemoryFile file("fuzz", std::string(gyre::as_text(stored)));
  try {
    return gyre::data::count_tfrecords(file, compression).records;
  } catch (const gyre::Error&) {
    return std::nullopt;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto stored = std::as_bytes(std::span(data, size));
  gyre::data::Inflater inflater;
  gyre::data::ScratchBuffer buffer;
  const auto counted = count_in_pieces(stored);
  try {
    const auto compression = gyre::data::tfrecord_compression(stored);
    const auto contents = inflater.inflate(compression, stored, kMostBytes, "fuzz", buffer);
    std::uint64_t record = 0;
    const auto places = gyre::data::index_tfrecords(contents, "fuzz");
    if (counted) GYRE_CHECK(*counted == places.size());
    for (const auto& place : places) {
      static_cast<void>(gyre::xxh3_64(gyre::data::checked_payload(contents, place, "fuzz", record++)));
    }
  } catch (const gyre::Error&) {
    return 0;  // The one allowed failure.
  }
  return 0;
}
