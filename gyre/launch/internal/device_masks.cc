#include "gyre/launch/internal/device_masks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/base/parse.h"
#include "gyre/base/process.h"
#include "gyre/launch/internal/rank_environment.h"

namespace gyre::launch {

namespace {

constexpr int kMostDevices = 1024;
/// Of NVIDIA, AMD, Intel and Huawei.
constexpr std::array<const char*, 4> kMasks = {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK",
                                               "ASCEND_RT_VISIBLE_DEVICES"};

}  // namespace

void set_device_masks(std::vector<std::string>& environment, int local_rank) {
  const std::string wanted = variable_of(environment, kDevicesPerRank);
  if (wanted.empty()) return;
  const auto count = static_cast<std::size_t>(parse_integer(wanted, kDevicesPerRank, 1, kMostDevices));
  const std::size_t first = static_cast<std::size_t>(local_rank) * count;
  std::vector<std::pair<const char*, std::string>> there;
  for (const char* name : kMasks) {
    if (std::string mask = variable_of(environment, name); !mask.empty()) there.emplace_back(name, std::move(mask));
  }
  for (const auto& [name, mask] : there) {
    const std::vector<std::string> devices = split(mask, ',');
    if (devices.size() < first + count) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("rank {} of this host is to have {} of its own (--devices-per-rank), but {} names {}", local_rank,
                      count == 1 ? "a device" : fmt::format("{} devices", count), name, devices.size()));
    }
    set_variable(environment, name, fmt::format("{}", fmt::join(std::span(devices).subspan(first, count), ",")));
  }
  if (!there.empty()) return;
  std::vector<std::size_t> numbers;
  for (std::size_t device = first; device < first + count; ++device) numbers.push_back(device);
  for (const char* name : kMasks) set_variable(environment, name, fmt::format("{}", fmt::join(numbers, ",")));
}

}  // namespace gyre::launch
