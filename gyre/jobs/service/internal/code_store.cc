#include "gyre/jobs/service/internal/code_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <span>
#include <system_error>

#include "gyre/base/error.h"
#include "gyre/jobs/api/errors.h"

namespace gyre::jobs::service {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::hours kLongestUnused{24};
constexpr const char* kArchive = ".tar";

void copy(const UniqueFd& from, const fs::path& to) {
  const UniqueFd file(::open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) throw system_error(fmt::format("cannot keep code in {}", to.string()), errno);
  std::array<std::byte, std::size_t{64} << 10> bytes;
  for (;;) {
    const ssize_t count = ::read(from.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error("cannot read an archive of code", errno);
    if (count == 0) break;
    write_all(file.get(), std::span(bytes).first(static_cast<std::size_t>(count)), to.string());
  }
  if (::fsync(file.get()) != 0) throw system_error(fmt::format("cannot keep code in {}", to.string()), errno);
}

/// What was renamed into the folder stays there.
void make_durable(const fs::path& folder) {
  const UniqueFd opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened || ::fsync(opened.get()) != 0) {
    throw system_error(fmt::format("cannot keep code in {}", folder.string()), errno);
  }
}

}  // namespace

fs::path CodeStore::path(catalog::Id workspace, const std::string& sha256) const {
  return folder_ / std::to_string(workspace) / (sha256 + kArchive);
}

bool CodeStore::has(catalog::Id workspace, const std::string& sha256) const {
  std::error_code ignored;
  return fs::exists(path(workspace, sha256), ignored);
}

bool CodeStore::keep_for_a_day(catalog::Id workspace, const std::string& sha256) {
  std::error_code failure;
  fs::last_write_time(path(workspace, sha256), fs::file_time_type::clock::now(), failure);
  return has(workspace, sha256);
}

void CodeStore::store(catalog::Id workspace, const std::string& sha256, const UniqueFd& archive, std::uint64_t bytes) {
  static std::atomic<std::uint64_t> next{0};
  const fs::path place = path(workspace, sha256);
  if (has(workspace, sha256)) return;
  fs::create_directories(place.parent_path());
  fs::permissions(folder_, fs::perms::owner_all);
  std::uint64_t held = bytes;
  for (const auto& entry : fs::directory_iterator(place.parent_path())) {
    std::error_code gone;
    const auto size = fs::file_size(entry.path(), gone);
    if (!gone) held += size;
  }
  if (held > kMostBytes) {
    throw api::ServiceError(
        api::ServiceError::Kind::kQuota, "TooMuchCode",
        fmt::format("this workspace's jobs keep {} GB of code with this archive, and at most {} GB are kept; delete "
                    "finished jobs, or put data on a mount",
                    held >> 30, kMostBytes >> 30));
  }
  const fs::path draft = place.string() + fmt::format(".{}.{}", ::getpid(), next++);
  try {
    copy(archive, draft);
    fs::rename(draft, place);
    for (const fs::path& folder : {place.parent_path(), folder_, folder_.parent_path()}) make_durable(folder);
  } catch (const std::exception&) {
    std::error_code ignored;
    fs::remove(draft, ignored);
    throw;
  }
}

void CodeStore::remove(catalog::Id workspace, const std::string& sha256) {
  std::error_code ignored;
  fs::remove(path(workspace, sha256), ignored);
}

void CodeStore::remove_unused(const std::function<bool(catalog::Id, const std::string&)>& is_used) {
  std::error_code failure;
  const auto now = fs::file_time_type::clock::now();
  for (auto entry = fs::recursive_directory_iterator(folder_, failure);
       !failure && entry != fs::recursive_directory_iterator(); entry.increment(failure)) {
    std::error_code gone;
    const fs::path& file = entry->path();
    if (!entry->is_regular_file(gone) || now - fs::last_write_time(file, gone) < kLongestUnused || gone) continue;
    const std::string workspace = file.parent_path().filename().string();
    catalog::Id id = 0;
    std::from_chars(workspace.data(), workspace.data() + workspace.size(), id);
    // A draft is what an upload has left that did not come to its end.
    const bool used = file.extension() == kArchive && is_used(id, file.stem().string());
    if (!used) fs::remove(file, gone);
  }
}

}  // namespace gyre::jobs::service
