#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace gyre {

/// The NVIDIA GPUs that a program here could use, as CUDA_VISIBLE_DEVICES names them: as many numbers from 0 on as
/// `devices` has files "nvidia0", "nvidia3" and so on (a container may have any of the machine's). Or, of `mask`, the
/// variable's value where it is set, what CUDA makes of it: the entries before the first that names no GPU, and none at
/// all if one comes twice. Numbers are checked where `devices` has such files.
std::vector<std::string> find_gpus(const std::optional<std::string>& mask,
                                   const std::filesystem::path& devices = "/dev");

int count_gpus(const std::optional<std::string>& mask, const std::filesystem::path& devices = "/dev");

}  // namespace gyre
