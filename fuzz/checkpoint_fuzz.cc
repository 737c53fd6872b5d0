// A checkpoint may come from a stranger or a dying disk: whatever its header says, reading it ends with tensors that
// lie in the file or with a gyre::Error. The checksum is put right first, or nothing would get past it.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/train/checkpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  gyre::Bytes bytes(input.begin(), input.end());
  constexpr std::string_view kPrefix = "xxh3:";
  constexpr std::size_t kDigits = 16;
  const std::size_t found = gyre::as_text(bytes).find(kPrefix);
  const std::size_t place = found + kPrefix.size();
  if (found != std::string_view::npos && bytes.size() - place >= kDigits) {
    std::memset(bytes.data() + place, '0', kDigits);
    const std::string digits = fmt::format("{:016x}", gyre::xxh3_64(bytes));
    std::memcpy(bytes.data() + place, digits.data(), kDigits);
  }
  try {
    const gyre::train::Checkpoint checkpoint = gyre::train::decode_checkpoint(bytes, "fuzz");
    for (const auto& tensor : checkpoint.tensors) static_cast<void>(gyre::xxh3_64(tensor.bytes));
  } catch (const gyre::Error&) {
    return 0;  // The one allowed failure.
  }
  return 0;
}
