#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "gyre/jobs/node/expansion.h"

namespace gyre::jobs::drivers::local::internal {

/// The NVIDIA GPUs of this machine.
struct FoundGpus {
  std::vector<std::string> names{};  ///< As CUDA_VISIBLE_DEVICES names them, each once.
  std::string problem{};             ///< Why GPUs that are there are not counted; empty: nothing is wrong.
};

/// How long `nvidia-smi` may take: it loads the driver where nothing keeps it loaded.
inline constexpr std::chrono::milliseconds kLongestSearch{10'000};

/// The entries of CUDA_VISIBLE_DEVICES where `environment` has it. Else, where `devices` has files "nvidia0" and so on,
/// the UUIDs that `nvidia-smi` of its PATH prints within the limit, or the GPUs' numbers where there is no such
/// program.
FoundGpus find_machine_gpus(const node::Variables& environment, const std::filesystem::path& devices = "/dev",
                            std::chrono::milliseconds limit = kLongestSearch);

}  // namespace gyre::jobs::drivers::local::internal
