// A record's payload may be anything: parsing it ends with views into it or with a gyre::Error.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/data/formats/example.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const gyre::data::Example example(std::as_bytes(std::span(data, size)));
    std::array<float, 16> floats{};
    std::array<std::int64_t, 16> ints{};
    for (const auto name : example.names()) {
      const auto* const feature = example.find(name);
      for (const auto value : feature->bytes()) static_cast<void>(gyre::xxh3_64(value));
      static_cast<void>(feature->copy_floats(floats));
      static_cast<void>(feature->copy_ints(ints));
    }
  } catch (const gyre::Error&) {
    return 0;  // The one allowed failure.
  }
  return 0;
}
