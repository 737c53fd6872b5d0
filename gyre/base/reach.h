#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "gyre/base/process.h"

namespace gyre {

/// What keeps a user from a file.
struct Obstacle {
  std::filesystem::path place;
  bool folder = false;  ///< A folder that the user may not enter; else the file itself, which the user may not read.
};

/// The first thing on the way to `path`, links followed, that keeps `who` from reading it, by its owner and mode.
/// Nothing where the way is free, ends before (there is no such file), or cannot be judged (an access control list).
/// `path` is absolute. For explanations: what a user may do, the system decides.
std::optional<Obstacle> obstacle_before(const std::filesystem::path& path, const UserId& who);

/// As whom this process acts.
UserId own_user();
/// "nobody"; the number where the user has no name.
std::string user_name(uid_t user);

/// "user 'nobody' cannot enter the folder /root, on the way to /root/train.py".
std::string explain(const Obstacle& obstacle, const std::filesystem::path& path, const std::string& user);

}  // namespace gyre
