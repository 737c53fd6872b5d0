// Whatever an IDX file holds, compressed or not, opening it and reading its images ends with bytes of it or with a
// gyre::Error.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "gyre/base/error.h"
#include "gyre/data/pixel_sets.h"
#include "gyre/data/tar_test_support.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string contents(reinterpret_cast<const char*>(data), size);
  constexpr std::uint64_t kMostImages = 64;  // Of many small ones; all are read alike.
  try {
    const gyre::data::IdxSet set({"fuzz-ubyte"}, [&](const std::string& name) {
      return std::make_unique<gyre::data::testing::MemoryFile>(name, contents);
    });
    const auto reader = set.make_reader(nullptr);
    gyre::data::StageTimes times;
    for (std::uint64_t i = 0; i < std::min(set.count(), kMostImages); ++i) reader->read_sample(i, times);
    reader->read_sample(set.count() - 1, times);
  } catch (const gyre::Error&) {
    return 0;  // The one allowed failure.
  }
  return 0;
}
