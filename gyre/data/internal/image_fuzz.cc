// Whatever claims to be an image, decoding any part of it at any size ends with pixels or with a gyre::Error. The first
// bytes choose the part.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/data/internal/image_maker.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kChoices = 2;
  constexpr std::uint64_t kMostPixels = 1 << 18;  // Large ones only take longer.
  constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20;
  if (size < kChoices) return 0;
  const auto stored = std::as_bytes(std::span(data, size).subspan(kChoices));
  gyre::data::ImageOptions options{.width = std::uint32_t{data[0]} + 1, .height = 16, .resize = 256};
  options.augment = (data[1] & 1) != 0;
  options.channels_first = (data[1] & 2) != 0;
  const auto type = (data[1] & 4) != 0 ? gyre::data::ElementType::kUint8 : gyre::data::ElementType::kFloat32;
  std::vector<std::byte> values(std::size_t{3} * options.width * options.height * gyre::data::size_bytes(type));
  gyre::data::internal::ImageMaker maker(std::make_shared<gyre::data::MemoryBudget>(kMostBytes), kMostPixels);
  gyre::data::StageTimes times;
  gyre::data::StageClock clock(times);
  try {
    maker.make(stored, nullptr, options, type, gyre::Random(data[1]), clock, values);
  } catch (const gyre::Error&) {
    return 0;  // The one allowed failure.
  }
  return 0;
}
