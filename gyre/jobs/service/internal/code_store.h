#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "gyre/base/file.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/jobs/catalog/types.h"

namespace gyre::jobs::service {

/// How much code may be kept; 0: any number of bytes.
struct CodeLimits {
  std::uint64_t bytes_per_user = 0;
  std::uint64_t bytes_per_workspace = std::uint64_t{20} << 30;
  std::uint64_t keep_free_bytes = 0;  ///< Of the file system.
};

/// The archives of code that users have uploaded, by workspace and SHA-256. An archive counts for the user who has
/// uploaded it first, as long as it is kept. Thread-safe where two do not work on one archive; two uploads of one may.
class CodeStore {
 public:
  explicit CodeStore(std::filesystem::path folder) : folder_(std::move(folder)) {}

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path path(catalog::Id workspace, const std::string& sha256) const;
  bool has(catalog::Id workspace, const std::string& sha256) const;
  /// Whether it is there; it is for a day from now on, whether or not a job uses it.
  bool keep_for_a_day(catalog::Id workspace, const std::string& sha256);
  /// Room for an archive of at most `bytes` that comes, which counts as kept while the answer lives; null where it is
  /// kept already. ServiceError(kNoRoom) beyond the limits.
  std::shared_ptr<void> room_for(catalog::Id workspace, const std::string& sha256, const std::string& user,
                                 std::uint64_t bytes, const CodeLimits& limits);
  /// On disk when it returns, whatever happens to the machine then. A file without a name on the same file system
  /// becomes the archive; any other is copied. Error(kIo | kResourceExhausted).
  void store(catalog::Id workspace, const std::string& sha256, const std::string& user, const UniqueFd& archive);
  void remove(catalog::Id workspace, const std::string& sha256);
  /// Removes what was uploaded, or last asked for, more than a day ago and `is_used` does not know.
  void remove_unused(const std::function<bool(catalog::Id workspace, const std::string& sha256)>& is_used);

 private:
  struct Coming {
    catalog::Id workspace;
    std::string user;
    std::uint64_t bytes;
  };
  struct Held {
    std::uint64_t of_user = 0;
    std::uint64_t of_workspace = 0;
    std::uint64_t coming = 0;  ///< Of everybody.
  };
  Held held(catalog::Id workspace, const std::string& user) GYRE_REQUIRES(mutex_);

  std::filesystem::path folder_;
  Mutex mutex_;
  std::uint64_t next_ GYRE_GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, Coming> coming_ GYRE_GUARDED_BY(mutex_);
};

}  // namespace gyre::jobs::service
