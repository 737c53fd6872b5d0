#pragma once

#include <filesystem>

#include "gyre/base/file.h"
#include "gyre/base/process.h"

// Folders of one account, which others can neither enter nor look into.
namespace gyre::jobs::agent::internal {

/// Where programs make the memory that they share.
inline const std::filesystem::path kSharedMemory = "/dev/shm";

/// Lets `user` make files in a folder of root's, which stays root's: nothing of root's in it can be moved or removed.
/// Other accounts may not enter it. By an access control list; on file systems without one by the account's first
/// group, of which others may be members. Error(kIo).
void open_to_account(const std::filesystem::path& folder, const UserId& user);

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

}  // namespace gyre::jobs::agent::internal
