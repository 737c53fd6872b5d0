// Whatever an archive holds, looking for its samples and reading them ends with views of its bytes or with a
// gyre::Error.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "gyre/base/error.h"
#include "gyre/data/tar_set.h"
#include "gyre/data/tar_test_support.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string contents(reinterpret_cast<const char*>(data), size);
  try {
    const gyre::data::TarSet set(
        {"fuzz.tar"},
        [&](const std::string& name) { return std::make_unique<gyre::data::testing::MemoryFile>(name, contents); }, 1);
    const auto reader = set.make_reader(nullptr);
    gyre::data::StageTimes times;
    for (std::uint64_t i = 0; i < set.count(); ++i) {
      const gyre::data::Example sample = reader->read_sample(i, times);
      for (const auto name : sample.names()) static_cast<void>(sample.find(name)->count());
    }
  } catch (const gyre::Error&) {
    return 0;  // The one allowed failure.
  }
  return 0;
}
