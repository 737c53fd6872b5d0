// A checkpoint may come from a stranger or a dying disk: whatever its header says, reading it ends with tensors that
// lie in the file or with a gyre::Error. The size and the checksum are put right first, or nothing would get past them.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/train/checkpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  constexpr std::size_t kSizeOffset = 16;
  gyre::Bytes bytes(input.begin(), input.end());
  if (bytes.size() >= kSizeOffset + sizeof(std::uint64_t)) {
    const std::uint64_t file_bytes = bytes.size() + sizeof(std::uint64_t);
    std::memcpy(bytes.data() + kSizeOffset, &file_bytes, sizeof(file_bytes));
  }
  gyre::ByteWriter checksum;
  checksum.u64(gyre::xxh3_64(bytes));
  bytes.insert(bytes.end(), checksum.result().begin(), checksum.result().end());
  try {
    const gyre::train::Checkpoint checkpoint = gyre::train::decode_checkpoint(bytes, "fuzz");
    for (const auto& tensor : checkpoint.tensors) static_cast<void>(gyre::xxh3_64(tensor.bytes));
  } catch (const gyre::Error&) {
    return 0;  // The one allowed failure.
  }
  return 0;
}
