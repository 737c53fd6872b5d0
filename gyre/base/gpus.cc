#include "gyre/base/gpus.h"

#include <algorithm>
#include <string_view>
#include <system_error>

#include "gyre/base/parse.h"

namespace gyre {

namespace {

/// "nvidia3", not "nvidiactl".
bool is_of_gpu(std::string_view name) {
  constexpr std::string_view kPrefix = "nvidia";
  if (!name.starts_with(kPrefix) || name.size() == kPrefix.size()) return false;
  return name.find_first_not_of("0123456789", kPrefix.size()) == std::string_view::npos;
}

}  // namespace

std::vector<std::string> find_gpus(const std::optional<std::string>& mask, const std::filesystem::path& devices) {
  if (mask) {
    if (mask->empty() || *mask == "-1" || *mask == "NoDevFiles") return {};
    return split(*mask, ',');
  }
  std::vector<std::string> found;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(devices, none)) {
    if (is_of_gpu(entry.path().filename().string())) found.push_back(std::to_string(found.size()));
  }
  return found;
}

int count_gpus(const std::optional<std::string>& mask, const std::filesystem::path& devices) {
  return static_cast<int>(find_gpus(mask, devices).size());
}

}  // namespace gyre
