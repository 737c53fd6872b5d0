// Any bytes at all may stand in a data file: reading them ends with images or with a gyre::Error, in bounded memory.
#include <cstddef>
#include <cstdint>
#include <span>

#include "gyre/base/error.h"
#include "gyre/data/formats/cifar10.h"
#include "gyre/data/formats/pickle_subset.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    gyre::data::parse_pickle(bytes, "fuzz");
    gyre::data::parse_cifar10_pickle(bytes, "fuzz");
  } catch (const gyre::Error&) {
    return 0;  // The one allowed failure.
  }
  return 0;
}
