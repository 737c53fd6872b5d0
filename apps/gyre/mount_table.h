#pragma once

#include <map>
#include <string>
#include <vector>

namespace gyre::app {

enum class MountCheck {
  kForm,       ///< Absolute paths, of another machine perhaps.
  kDirectory,  ///< Directories of this machine; they become absolute.
};

/// What --mount NAME=DIR says, given any number of times. UsageError.
std::map<std::string, std::string> mount_table(const std::vector<std::string>& mounts, MountCheck check);

}  // namespace gyre::app
