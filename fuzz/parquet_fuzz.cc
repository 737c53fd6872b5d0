// Whatever a file holds, looking for its columns and reading its rows ends with values or with a gyre::Error. The
// subject is our side, which trusts neither the file nor what Arrow makes of it; Arrow itself is not instrumented here.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "gyre/base/error.h"
#include "gyre/data/parquet_set.h"
#include "gyre/data/tar_test_support.h"

namespace {

/// Arrow then allocates where the sanitizer sees it.
const bool kSystemMemory = ::setenv("ARROW_DEFAULT_MEMORY_POOL", "system", 1) == 0;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::uint64_t kBudgetBytes = std::uint64_t{32} << 20;
  constexpr std::uint64_t kMostRows = 64;
  const std::string contents(reinterpret_cast<const char*>(data), size);
  try {
    const auto set = gyre::data::open_parquet(
        {"fuzz.parquet"},
        [&](const std::string& name) { return std::make_unique<gyre::data::testing::MemoryFile>(name, contents); }, {});
    const auto reader = set->make_reader(std::make_shared<gyre::data::MemoryBudget>(kBudgetBytes));
    gyre::data::StageTimes times;
    for (std::uint64_t i = 0; i < set->count() && i < kMostRows; ++i) {
      const gyre::data::Example sample = reader->read_sample(i, times);
      for (const auto name : sample.names()) static_cast<void>(sample.find(name)->count());
    }
  } catch (const gyre::Error&) {
    return 0;  // The one allowed failure.
  }
  return kSystemMemory ? 0 : -1;
}
