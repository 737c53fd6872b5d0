#include "gyre/base/boot.h"

#include <ctime>

#include "gyre/base/bytes.h"
#include "gyre/base/file.h"

namespace gyre {

std::int64_t boot_clock_us() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000 + now.tv_nsec / 1'000;
}

std::string boot_id() {
  constexpr std::size_t kMostBytes = 256;
  const Bytes bytes = read_file("/proc/sys/kernel/random/boot_id", kMostBytes);
  std::string text(as_text(bytes));
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace gyre
