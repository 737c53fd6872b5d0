#include "gyre/launch/internal/device_masks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>

#include "gyre/base/error.h"
#include "gyre/base/gpus.h"
#include "gyre/base/parse.h"
#include "gyre/base/process.h"
#include "gyre/launch/internal/rank_environment.h"

namespace gyre::launch {

namespace {

constexpr int kMostDevices = 1024;
/// Of NVIDIA, AMD, Intel and Huawei.
constexpr std::array<const char*, 4> kMasks = {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK",
                                               "ASCEND_RT_VISIBLE_DEVICES"};

/// Unlike variable_of(), tells a mask that hides all devices from none.
std::optional<std::string> mask_in(const std::vector<std::string>& environment, const std::string& name) {
  const auto found =
      std::ranges::find_if(environment, [&](const std::string& entry) { return entry.starts_with(name + "="); });
  return found == environment.end() ? std::nullopt : std::optional(found->substr(name.size() + 1));
}

/// Of AMD, Intel and Huawei; and NVIDIA's in WSL and on Tegra, where its files have other names. They are not counted.
bool has_other_devices(const std::filesystem::path& devices) {
  std::error_code none;
  return std::ranges::any_of(std::array{"kfd", "dri", "davinci_manager", "dxg", "nvhost-gpu", "nvgpu"},
                             [&](const char* name) { return std::filesystem::exists(devices / name, none); });
}

Error too_few(int local_rank, std::size_t count, const std::string& there) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("rank {} of this host is to have {} of its own (--devices-per-rank), but {}", local_rank,
                      count == 1 ? "a device" : fmt::format("{} devices", count), there)};
}

}  // namespace

void set_device_masks(std::vector<std::string>& environment, int local_rank, const std::filesystem::path& devices) {
  const std::string wanted = variable_of(environment, kDevicesPerRank);
  if (wanted.empty()) return;
  const auto count = static_cast<std::size_t>(parse_integer(wanted, kDevicesPerRank, 1, kMostDevices));
  const std::size_t first = static_cast<std::size_t>(local_rank) * count;
  bool masked = false;
  for (const char* name : kMasks) {
    const std::optional<std::string> mask = mask_in(environment, name);
    if (!mask) continue;
    const bool of_nvidia = std::string_view(name) == kMasks.front();
    const std::vector<std::string> named = find_gpus(mask, of_nvidia ? devices : std::filesystem::path());
    if (named.size() < first + count) {
      throw too_few(local_rank, count, fmt::format("{} names {}", name, named.size()));
    }
    set_variable(environment, name, fmt::format("{}", fmt::join(std::span(named).subspan(first, count), ",")));
    masked = true;
  }
  if (masked) return;
  const std::size_t gpus = find_gpus(std::nullopt, devices).size();
  if (gpus == 0 && !has_other_devices(devices)) {
    throw too_few(local_rank, count,
                  fmt::format("the host shows none (no {}/nvidia0, kfd, dri, davinci_manager); where it has some all "
                              "the same, name them in {}",
                              devices.string(), fmt::join(kMasks, ", or ")));
  }
  if (gpus > 0 && gpus < first + count) {
    throw too_few(local_rank, count, fmt::format("the host has {} NVIDIA GPU{}", gpus, gpus == 1 ? "" : "s"));
  }
  std::vector<std::size_t> numbers;
  for (std::size_t device = first; device < first + count; ++device) numbers.push_back(device);
  for (const char* name : kMasks) set_variable(environment, name, fmt::format("{}", fmt::join(numbers, ",")));
}

}  // namespace gyre::launch
