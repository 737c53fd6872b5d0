#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "gyre/base/file.h"

namespace gyre::training {

/// Keeps a folder of checkpoints for one run: an flock on its file run.lock, which names the process that holds it. The
/// lock ends with the process, however that ends; a run that ends by itself removes the file too. Not thread-safe.
class RunLock {
 public:
  /// Makes the folder when needed. `option`: the one that names another folder, for messages. Error(kInvalidArgument)
  /// where another run has the folder: it names the folder, and the other run's host and process. Waits for two seconds
  /// before, because the rank of a job that was killed may be about to end. Error(kIo) where no file can be made.
  RunLock(const std::filesystem::path& folder, std::string_view option);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  /// What this lock cannot tell, in a sentence: that the file system has no locks, or that another host's run has left
  /// its file where locks hold on one host only. Empty: nothing.
  const std::string& remark() const { return remark_; }

 private:
  void note_holder();

  std::filesystem::path path_;
  UniqueFd file_;
  std::string remark_;
};

/// The type of the file system of device `major`:`minor` in the table /proc/self/mountinfo, if its locks hold on one
/// host only although other hosts can have the same files: FUSE, NFS with local locks, SMB and Lustre likewise. Pure.
std::optional<std::string> type_with_local_locks(std::string_view mountinfo, unsigned major, unsigned minor);

}  // namespace gyre::training
