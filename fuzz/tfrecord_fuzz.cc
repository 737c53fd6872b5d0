// Whatever a file holds, reading its records ends with bytes of the file or with a gyre::Error; compressed or not.
#include <cstddef>
#include <cstdint>
#include <span>

#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/data/formats/tfrecord.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::uint64_t kMostBytes = std::uint64_t{16} << 20;
  const auto stored = std::as_bytes(std::span(data, size));
  gyre::data::Inflater inflater;
  gyre::data::ScratchBuffer buffer;
  try {
    const auto compression = gyre::data::tfrecord_compression(stored);
    const auto contents = inflater.inflate(compression, stored, kMostBytes, "fuzz", buffer);
    std::uint64_t record = 0;
    for (const auto& place : gyre::data::index_tfrecords(contents, "fuzz")) {
      static_cast<void>(gyre::xxh3_64(gyre::data::checked_payload(contents, place, "fuzz", record++)));
    }
  } catch (const gyre::Error&) {
    return 0;  // The one allowed failure.
  }
  return 0;
}
