#include "gyre/jobs/containers/container_runtime.h"

#include <fmt/format.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <iterator>
#include <limits>
#include <string_view>

#include "gyre/base/error.h"
#include "gyre/base/parse.h"
#include "gyre/jobs/containers/docker.h"
#include "gyre/jobs/containers/podman.h"

namespace gyre::jobs::containers {

namespace {

bool has_program(const char* program, const std::vector<std::string>& environment) {
  try {
    find_command(program, variable_of(environment, "PATH"));
    return true;
  } catch (const SpawnError&) {
    return false;
  }
}

}  // namespace

std::unique_ptr<ContainerRuntime> find_runtime(const std::filesystem::path& storage,
                                               const std::vector<std::string>& environment) {
  const std::string chosen = variable_of(environment, "GYRE_CONTAINER_PROGRAM");
  if (!chosen.empty() && chosen != "podman" && chosen != "docker") {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("GYRE_CONTAINER_PROGRAM is '{}'; it can be podman or docker", chosen));
  }
  const bool has_podman = has_program("podman", environment);
  const bool wants_docker = chosen == "docker" || (chosen.empty() && !has_podman);
  if (wants_docker && has_program("docker", environment)) return std::make_unique<Docker>(environment);
  if (chosen == "docker") {
    throw Error(ErrorCode::kUnsupported,
                "this machine has no docker, which GYRE_CONTAINER_PROGRAM names; install it (`apt-get install "
                "docker.io`)");
  }
  if (!has_podman) {
    throw Error(ErrorCode::kUnsupported,
                "this machine has no podman, which starts the containers of jobs; install it (`apt-get install podman "
                "runc`, `dnf install podman`), or docker");
  }
  return std::make_unique<Podman>(storage, environment);
}

std::filesystem::path storage_of(const std::vector<std::string>& environment) {
  const std::string folder = variable_of(environment, "GYRE_CONTAINERS");
  return folder.empty() ? kDefaultStorage : std::filesystem::weakly_canonical(std::filesystem::absolute(folder));
}

std::uint64_t built_image_bytes(const std::vector<std::string>& environment) {
  constexpr const char* kName = "GYRE_BUILT_IMAGES";
  constexpr std::uint64_t kDefault = 50'000'000'000;
  const std::string most = variable_of(environment, kName);
  return most.empty() ? kDefault : parse_bytes(most, kName);
}

std::vector<std::string> runtime_environment(const std::vector<std::string>& environment) {
  constexpr std::array kNames = {"PATH",
                                 "HOME",
                                 "HTTP_PROXY",
                                 "HTTPS_PROXY",
                                 "NO_PROXY",
                                 "http_proxy",
                                 "https_proxy",
                                 "no_proxy",
                                 "SSL_CERT_FILE",
                                 "SSL_CERT_DIR",
                                 "LANG",
                                 "DOCKER_HOST",
                                 "GYRE_CONTAINER_PROGRAM",
                                 "GYRE_BUILT_IMAGES"};
  std::vector<std::string> kept;
  std::ranges::copy_if(environment, std::back_inserter(kept), [&](const std::string& entry) {
    return std::ranges::find(kNames, entry.substr(0, entry.find('='))) != kNames.end();
  });
  return kept;
}

std::uint64_t bytes_of_size(const std::string& size) {
  std::uint64_t number = 0;
  const auto [end, failure] = std::from_chars(size.data(), size.data() + size.size(), number);
  const std::string_view unit(end, size.data() + size.size());
  constexpr std::string_view kUnits = "bkmgt";
  const std::size_t power = unit.empty() ? 0 : kUnits.find(static_cast<char>(std::tolower(unit.front())));
  const bool overflows =
      power != std::string_view::npos && number > (std::numeric_limits<std::uint64_t>::max() >> (10 * power));
  if (failure != std::errc() || power == std::string_view::npos || overflows) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a size such as 64m or 16gb", size));
  }
  return number << (10 * power);
}

std::uint64_t memory_of_machine() {
  struct sysinfo info{};
  return ::sysinfo(&info) == 0 ? std::uint64_t{info.totalram} * info.mem_unit : 0;
}

std::uint64_t shared_memory_size(const std::string& wanted, std::uint64_t memory_bytes) {
  if (wanted.empty()) return memory_bytes / 2;
  const std::uint64_t bytes = bytes_of_size(wanted);
  if (bytes <= memory_bytes) return bytes;
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("its shmSize is {}, and the job may have {} MB of memory; ask for less", wanted, memory_bytes >> 20));
}

}  // namespace gyre::jobs::containers
