#include "gyre/jobs/service/internal/code_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <span>
#include <system_error>

#include "gyre/base/error.h"
#include "gyre/jobs/resources/service_error.h"
#include "gyre/jobs/service/internal/disk_reserve.h"

namespace gyre::jobs::service {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::hours kLongestUnused{24};
constexpr const char* kArchive = ".tar";
/// An empty file, "SHA256.of-USER", tells whose an archive is: it needs no room, and is there whatever the catalog was
/// restored from.
constexpr const char* kOwnerMark = ".of-";

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

/// The file `from`, which has no name, under one, without another copy of its bytes. False where it cannot be had.
bool link_file(const UniqueFd& from, const fs::path& to) {
  struct stat status{};
  if (::fstat(from.get(), &status) != 0 || status.st_nlink != 0) return false;
  const std::string file = fmt::format("/proc/self/fd/{}", from.get());
  if (::linkat(AT_FDCWD, file.c_str(), AT_FDCWD, to.c_str(), AT_SYMLINK_FOLLOW) != 0) return false;
  if (::fsync(from.get()) != 0) throw system_error(fmt::format("cannot keep code in {}", to.string()), errno);
  return true;
}

/// The archive that an owner's mark is for: its name without an extension.
std::string marked_archive(const fs::path& mark) {
  const std::string name = mark.filename().string();
  const std::size_t at = name.find(kOwnerMark);
  return at == std::string::npos ? std::string() : name.substr(0, at);
}

void put_mark(const fs::path& archive, const std::string& user) {
  const fs::path mark = fs::path(archive).replace_extension().string() + kOwnerMark + user;
  const UniqueFd file(::open(mark.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) throw system_error(fmt::format("cannot keep code in {}", mark.string()), errno);
}

std::uint64_t size_of(const fs::path& file) {
  std::error_code gone;
  const auto bytes = fs::file_size(file, gone);
  return gone ? 0 : bytes;
}

void check_share(const std::string& user, std::uint64_t held, std::uint64_t bytes, std::uint64_t most) {
  if (most == 0 || held + bytes <= most) return;
  throw resources::ServiceError(
      resources::ServiceError::Kind::kNoRoom, "TooMuchCode",
      fmt::format("this server keeps {} bytes of code of user '{}', and with this archive of {} bytes it would be more "
                  "than the {} bytes that one user may have (`gyre server --limit code`); delete jobs whose code is "
                  "not needed any more (`gyre job delete`), or put data on a mount",
                  held, user, bytes, most));
}

void check_workspace(std::uint64_t held, std::uint64_t bytes, std::uint64_t most) {
  if (most == 0 || held + bytes <= most) return;
  throw resources::ServiceError(
      resources::ServiceError::Kind::kNoRoom, "TooMuchCode",
      fmt::format(
          "this workspace's jobs would keep {} GB of code with this archive, and at most {} GB are kept; delete "
          "finished jobs, or put data on a mount",
          (held + bytes) >> 30, most >> 30));
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

CodeStore::Held CodeStore::held(catalog::Id workspace, const std::string& user) {
  Held held;
  for (const auto& [number, one] : coming_) {
    held.coming += one.bytes;
    if (one.user == user) held.of_user += one.bytes;
    if (one.workspace == workspace) held.of_workspace += one.bytes;
  }
  std::error_code failure;
  const std::string ending = kOwnerMark + user;
  const fs::path of_workspace = folder_ / std::to_string(workspace);
  for (auto entry = fs::recursive_directory_iterator(folder_, failure);
       !failure && entry != fs::recursive_directory_iterator(); entry.increment(failure)) {
    const fs::path& file = entry->path();
    const std::string archive = marked_archive(file);
    if (!archive.empty() && file.native().ends_with(ending)) {
      held.of_user += size_of(file.parent_path() / (archive + kArchive));
    }
    if (file.extension() == kArchive && file.parent_path() == of_workspace) held.of_workspace += size_of(file);
  }
  return held;
}

std::shared_ptr<void> CodeStore::room_for(catalog::Id workspace, const std::string& sha256, const std::string& user,
                                          std::uint64_t bytes, const CodeLimits& limits) {
  if (has(workspace, sha256)) return nullptr;
  fs::create_directories(folder_);
  const MutexLock lock(mutex_);
  const Held held = this->held(workspace, user);
  check_share(user, held.of_user, bytes, limits.bytes_per_user);
  check_workspace(held.of_workspace, bytes, limits.bytes_per_workspace);
  check_reserve(folder_.parent_path(), held.coming + bytes, limits.keep_free_bytes,
                fmt::format("no archive of code of {} bytes", bytes), ", or leave files out in .gyreignore");
  const std::uint64_t number = next_++;
  coming_[number] = {workspace, user, bytes};
  return {nullptr, [this, number](const void*) {
            const MutexLock relock(mutex_);
            coming_.erase(number);
          }};
}

void CodeStore::store(catalog::Id workspace, const std::string& sha256, const std::string& user,
                      const UniqueFd& archive) {
  static std::atomic<std::uint64_t> next{0};
  const fs::path place = path(workspace, sha256);
  if (has(workspace, sha256)) return;
  fs::create_directories(place.parent_path());
  fs::permissions(folder_, fs::perms::owner_all);
  const fs::path draft = place.string() + fmt::format(".{}.{}", ::getpid(), next++);
  try {
    if (!link_file(archive, draft)) copy(archive, draft);
    put_mark(place, user);
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
  const fs::path archive = path(workspace, sha256);
  fs::remove(archive, ignored);
  for (auto entry = fs::directory_iterator(archive.parent_path(), ignored);
       !ignored && entry != fs::directory_iterator(); entry.increment(ignored)) {
    std::error_code gone;
    if (marked_archive(entry->path()) == sha256) fs::remove(entry->path(), gone);
  }
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
    const std::string marked = marked_archive(file);
    const bool used =
        marked.empty() ? file.extension() == kArchive && is_used(id, file.stem().string()) : has(id, marked);
    if (!used) fs::remove(file, gone);
  }
}

}  // namespace gyre::jobs::service
