#include "gyre/jobs/containers/program_files.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <chrono>
#include <sstream>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/jobs/containers/internal/program_run.h"

namespace gyre::jobs::containers {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kLongestListing{30};

/// The one that has loaded this program.
fs::path own_loader() {
  Dl_info found{};
  if (::dladdr(reinterpret_cast<void*>(::getauxval(AT_BASE)), &found) == 0 || found.dli_fname == nullptr) {
    throw Error(ErrorCode::kUnsupported, "this program has no loader; it cannot bring one into a container");
  }
  return found.dli_fname;
}

}  // namespace

std::vector<fs::path> libraries_in(const std::string& listing) {
  std::vector<fs::path> libraries;
  std::istringstream lines(listing);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t arrow = line.find(" => /");
    const std::size_t end = line.rfind(" (0x");
    if (arrow == std::string::npos || end == std::string::npos || end < arrow) continue;
    libraries.emplace_back(line.substr(arrow + 4, end - arrow - 4));
  }
  return libraries;
}

std::vector<BindMount> program_mounts(const fs::path& program) {
  if (::access(program.c_str(), R_OK) != 0) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("this installation of Gyre cannot start containers: it has no {}", program.string()));
  }
  const fs::path loader = own_loader();
  const auto listed =
      internal::run_program({loader.string(), "--list", program.string()}, {}, Deadline::after(kLongestListing), {});
  if (!listed.status.success()) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("the libraries of {} cannot be found: {}", program.string(), listed.error));
  }
  std::vector<BindMount> mounts = {{program, kProgramInContainer, true}, {loader, kLoaderInContainer, true}};
  for (const fs::path& library : libraries_in(listed.out)) {
    mounts.push_back({fs::canonical(library), fs::path(kLibrariesInContainer) / library.filename(), true});
  }
  return mounts;
}

}  // namespace gyre::jobs::containers
