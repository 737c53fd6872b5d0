#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "gyre/base/file.h"

namespace gyre::jobs::containers::internal {

/// When each of the images that were built here was used last, and whether somebody is about to use it: a file for
/// each, whose time is that of the use, and whose lock its users share. Thread-safe, among processes as well.
class ImageUses {
 public:
  /// `folder`: of nobody else; made when it is needed.
  explicit ImageUses(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// Notes a use of the image now, after its removal if that is under way. Nobody removes it while the descriptor is
  /// open. Error(kIo).
  UniqueFd use(const std::string& key) const;
  /// Has the image alone, to remove it; empty where somebody has it. Error(kIo).
  UniqueFd take(const std::string& key) const;
  /// Of an image that take() has given, which has been removed.
  void forget(const std::string& key) const;
  /// The earliest time for those that have not been used.
  std::filesystem::file_time_type last_use(const std::string& key) const;

 private:
  /// By this `operation` of flock(2); empty: that has failed.
  UniqueFd locked(const std::string& key, int operation) const;

  std::filesystem::path folder_;
};

/// One of podman's list.
struct BuiltImage {
  std::string key;  ///< Behind kBuiltImages.
  std::uint64_t bytes = 0;
  std::filesystem::file_time_type used;
};

/// The images that were built here, of podman's list as JSON; `used` is left. What is not understood is left out. Pure.
std::vector<BuiltImage> built_images_of(const std::string& list);

}  // namespace gyre::jobs::containers::internal
