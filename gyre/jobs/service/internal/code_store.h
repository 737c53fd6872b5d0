#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "gyre/base/file.h"
#include "gyre/jobs/catalog/types.h"

namespace gyre::jobs::service {

/// The archives of code that users have uploaded, by workspace and SHA-256. Thread-safe where two do not work on one
/// archive; two uploads of one may.
class CodeStore {
 public:
  /// Of all archives of a workspace.
  static constexpr std::uint64_t kMostBytes = std::uint64_t{20} << 30;

  explicit CodeStore(std::filesystem::path folder) : folder_(std::move(folder)) {}

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path path(catalog::Id workspace, const std::string& sha256) const;
  bool has(catalog::Id workspace, const std::string& sha256) const;
  /// Whether it is there; it is for a day from now on, whether or not a job uses it.
  bool keep_for_a_day(catalog::Id workspace, const std::string& sha256);
  /// On disk when it returns, whatever happens to the machine then. ServiceError(kQuota) beyond kMostBytes; Error(kIo |
  /// kResourceExhausted).
  void store(catalog::Id workspace, const std::string& sha256, const UniqueFd& archive, std::uint64_t bytes);
  void remove(catalog::Id workspace, const std::string& sha256);
  /// Removes what was uploaded, or last asked for, more than a day ago and `is_used` does not know.
  void remove_unused(const std::function<bool(catalog::Id workspace, const std::string& sha256)>& is_used);

 private:
  std::filesystem::path folder_;
};

}  // namespace gyre::jobs::service
