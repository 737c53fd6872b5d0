#include "gyre/base/gpus.h"

#include <algorithm>
#include <charconv>
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

/// "3" and "GPU-8f2a", "MIG-8f2a". Of numbers, those below `count` where that is known.
bool names_gpu(const std::string& entry, std::size_t count) {
  if (entry.starts_with("GPU-") || entry.starts_with("MIG-")) return true;
  if (entry.empty() || entry.front() < '0' || entry.front() > '9') return false;
  std::size_t number = 0;
  const auto [end, failure] = std::from_chars(entry.data(), entry.data() + entry.size(), number);
  return failure == std::errc() && (count == 0 || number < count);
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") + 1 - first);
}

std::vector<std::string> named_by(const std::string& mask, std::size_t count) {
  std::vector<std::string> named;
  for (const std::string& text : split(mask, ',')) {
    std::string entry(trimmed(text));
    if (std::ranges::find(named, entry) != named.end()) return {};
    if (!names_gpu(entry, count)) break;
    named.push_back(std::move(entry));
  }
  return named;
}

std::vector<std::string> devices_of_files(const std::filesystem::path& devices) {
  std::vector<std::string> found;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(devices, none)) {
    if (is_of_gpu(entry.path().filename().string())) found.push_back(std::to_string(found.size()));
  }
  return found;
}

}  // namespace

std::vector<std::string> find_gpus(const std::optional<std::string>& mask, const std::filesystem::path& devices) {
  std::vector<std::string> there = devices_of_files(devices);
  return mask ? named_by(*mask, there.size()) : there;
}

int count_gpus(const std::optional<std::string>& mask, const std::filesystem::path& devices) {
  return static_cast<int>(find_gpus(mask, devices).size());
}

}  // namespace gyre
