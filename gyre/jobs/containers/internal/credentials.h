#pragma once

#include <filesystem>
#include <string>

#include "gyre/jobs/containers/container_runtime.h"

namespace gyre::jobs::containers::internal {

/// A folder with the password for one registry, in the file that podman, skopeo and docker read: readable by us alone,
/// and gone with this object. None where the registry wants no password.
class Credentials {
 public:
  /// `folder`: where it is made. `registry`: what the program calls it. Error(kIo).
  Credentials(const std::filesystem::path& folder, const ImageName& name, const std::string& registry);
  ~Credentials();
  Credentials(const Credentials&) = delete;
  Credentials& operator=(const Credentials&) = delete;

  /// Empty: there is none.
  const std::string& folder() const { return folder_; }
  std::string file() const;

 private:
  std::string folder_;
};

}  // namespace gyre::jobs::containers::internal
