#include "apps/gyre/mount_table.h"

#include <fmt/format.h>

#include <filesystem>

#include "apps/gyre/run_command.h"

namespace gyre::app {

namespace fs = std::filesystem;

std::map<std::string, std::string> mount_table(const std::vector<std::string>& mounts, MountCheck check) {
  std::map<std::string, std::string> table;
  for (const std::string& mount : mounts) {
    const std::size_t equals = mount.find('=');
    if (equals == 0 || equals == std::string::npos || equals + 1 == mount.size()) {
      throw UsageError(fmt::format("--mount takes NAME=DIR, not '{}'", mount));
    }
    fs::path directory = mount.substr(equals + 1);
    if (check == MountCheck::kForm && !directory.is_absolute()) {
      throw UsageError(fmt::format("--mount {}: nodes need an absolute path", mount));
    }
    if (check == MountCheck::kDirectory) {
      if (!fs::is_directory(directory)) {
        throw UsageError(fmt::format("--mount {}: {} is not a directory", mount, directory.string()));
      }
      directory = fs::canonical(directory);
    }
    if (!table.emplace(mount.substr(0, equals), directory.string()).second) {
      throw UsageError(fmt::format("--mount gives {} twice", mount.substr(0, equals)));
    }
  }
  return table;
}

}  // namespace gyre::app
