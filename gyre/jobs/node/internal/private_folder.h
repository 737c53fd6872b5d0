#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "gyre/base/file.h"
#include "gyre/base/process.h"

// Folders of one account, which others can neither enter nor look into.
namespace gyre::jobs::node::internal {

/// Where programs make the memory that they share.
inline const std::filesystem::path kSharedMemory = "/dev/shm";

/// A folder for one account alone where everybody may make files: in /tmp, in /dev/shm. The nodes of an attempt that
/// share a machine share it, and the last one to leave it removes it.
class PrivateFolder {
 public:
  /// Makes it, or finds the one that belongs to `user`. Error(kInvalidArgument) where another account has taken its
  /// name; Error(kIo).
  PrivateFolder(std::filesystem::path path, const UserId& user);

  const std::filesystem::path& path() const { return path_; }
  /// Removes it, with all that is in it, unless another node uses it.
  void leave();

 private:
  std::filesystem::path path_;
  UniqueFd held_;  // Locked while the folder is in use.
};

/// For a PrivateFolder whose node is gone. One that is not there is fine. Error(kIo).
void remove_private_folder(const std::filesystem::path& path);

/// What an attempt has in /tmp and /dev/shm for its account alone, as long as this object has not left them.
class PrivateFolders {
 public:
  /// Makes them, or finds them. `own_memory`: this process's mounts are its own, so that it and all that it starts can
  /// see another /dev/shm than everybody's. Error(kIo, kInvalidArgument).
  void use(const std::string& attempt, const UserId& user, bool own_memory);
  /// Nobody else's files are in /dev/shm.
  bool has_memory() const { return memory_.has_value(); }
  /// Error(kIo).
  void leave();

 private:
  std::optional<PrivateFolder> temporary_;  ///< $TMPDIR.
  std::optional<PrivateFolder> memory_;     ///< What is seen as /dev/shm.
};

}  // namespace gyre::jobs::node::internal
