#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace gyre::launch {

/// The number of devices that each rank of a host is to see; none: all of them.
constexpr const char* kDevicesPerRank = "GYRE_DEVICES_PER_RANK";

/// Where `environment` has kDevicesPerRank, shows the rank that is number `local_rank` of its host that many devices:
/// its share of the masks that are there (CUDA_VISIBLE_DEVICES and those of other vendors), or of all devices where
/// there is none. Error(kInvalidArgument) for masks that name too few (see find_gpus()), for too few NVIDIA GPUs in
/// `devices`, and where there is neither a mask nor a device of any vendor's.
void set_device_masks(std::vector<std::string>& environment, int local_rank,
                      const std::filesystem::path& devices = "/dev");

}  // namespace gyre::launch
