// A specification comes from whoever starts `gyre launch`: any bytes must be read within the limits or refused.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "gyre/base/error.h"
#include "gyre/launch/spec.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    static_cast<void>(gyre::launch::parse_launch_spec({reinterpret_cast<const char*>(data), size}, {"PATH=/bin"}));
  } catch (const gyre::Error& error) {
    if (error.code() != gyre::ErrorCode::kInvalidArgument) std::abort();
  }
  return 0;
}
