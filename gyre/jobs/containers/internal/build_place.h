#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gyre/base/file.h"
#include "gyre/base/process.h"
#include "gyre/jobs/containers/container_runtime.h"

namespace gyre::jobs::containers::internal {

/// Waits until flock(2) gives it, and asks meanwhile whether to give up: Error(kAborted).
void lock_file(const UniqueFd& file, int operation, const Interruption& interruption);
/// Made if it is missing. Error(kIo).
UniqueFd open_lock(const std::filesystem::path& file);

/// The runtime's program below podman, and the environment of both.
struct LowRuntime {
  std::string program;  ///< "runc", "crun".
  std::vector<std::string> environment;
};

/// Where podman keeps what it needs while it builds one image, and the end of all that a killed builder leaves: the
/// program of a RUN, which podman starts in a container that is none of podman's, its folders, and the containers of
/// the storage that hold a build's files. For one thread.
class BuildPlace {
 public:
  /// `builds`: the folder of all builds of a storage, to which everybody has to have a way: the programs of a build
  /// start below it. `lock`: a file that all of them share. `key`: of this one; nobody else builds it meanwhile.
  /// `remove_containers` removes what builds have left in the storage, and is called while nobody builds.
  BuildPlace(const std::filesystem::path& builds, const std::filesystem::path& lock, const std::string& key,
             LowRuntime runtime, std::function<void()> remove_containers, const Interruption& interruption);
  /// Nothing of the build is left then, unless others build as well: then the last of them, or the next.
  ~BuildPlace();
  BuildPlace(const BuildPlace&) = delete;
  BuildPlace& operator=(const BuildPlace&) = delete;

  /// Of podman: TMPDIR.
  const std::filesystem::path& folder() const { return folder_; }

 private:
  /// Of builds that are over, if nobody builds.
  void clean_up();
  /// Ends the programs of a build, and removes its folder.
  void end(const std::filesystem::path& folder) const;
  /// Waits for our end, however it comes, and ends the programs of this build then.
  void start_guardian();

  const std::filesystem::path builds_;
  const std::filesystem::path folder_;
  const LowRuntime runtime_;
  const std::function<void()> remove_containers_;
  UniqueFd building_;  ///< Shared while something is built.
  std::optional<Process> guardian_;
  UniqueFd guarded_;  ///< Its stdin. A line: all is well.
};

}  // namespace gyre::jobs::containers::internal
