#include "gyre/jobs/http/internal/file_listing.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>

#include "gyre/jobs/http/internal/contained_file.h"
#include "gyre/net/http/error.h"

namespace gyre::jobs::http::internal {
namespace {

constexpr std::size_t kMostEntries = 100'000;

std::vector<std::string> names_in(const UniqueFd& directory) {
  UniqueFd again(::openat(directory.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!again) throw system_error("reading a job's directory", errno);
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(again.get()), ::closedir);
  if (!stream) throw system_error("reading a job's directory", errno);
  again.release();
  std::vector<std::string> names;
  for (const dirent* entry = ::readdir(stream.get()); entry != nullptr; entry = ::readdir(stream.get())) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (names.size() >= kMostEntries) {
      throw Error(ErrorCode::kResourceExhausted,
                  fmt::format("the directory has more than {} entries; ask for its files by name", kMostEntries));
    }
    names.push_back(name);
  }
  return names;
}

std::optional<ListedFile> look_at(const UniqueFd& directory, const std::string& name) {
  struct stat status{};
  if (::fstatat(directory.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return std::nullopt;  // Gone again.
  if (S_ISLNK(status.st_mode)) {
    try {
      const UniqueFd target = open_beneath(directory, name);
      if (::fstat(target.get(), &status) != 0) return std::nullopt;
    } catch (const net::http::HttpError&) {
      return std::nullopt;
    }
  }
  if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) return std::nullopt;
  const bool is_directory = S_ISDIR(status.st_mode);
  return ListedFile{name, is_directory, is_directory ? 0 : static_cast<std::uint64_t>(status.st_size),
                    std::int64_t{status.st_mtim.tv_sec} * 1'000'000 + status.st_mtim.tv_nsec / 1'000, status.st_ino};
}

}  // namespace

FileListing list_files(const UniqueFd& directory, const std::string& after, std::size_t most) {
  std::vector<std::string> names = names_in(directory);
  std::sort(names.begin(), names.end());
  FileListing listing;
  for (auto name = std::upper_bound(names.begin(), names.end(), after); name != names.end(); ++name) {
    auto file = look_at(directory, *name);
    if (!file) continue;
    if (listing.files.size() == most) {
      listing.has_more = true;
      break;
    }
    listing.files.push_back(std::move(*file));
  }
  return listing;
}

}  // namespace gyre::jobs::http::internal
