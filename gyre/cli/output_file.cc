#include "gyre/cli/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "gyre/base/error.h"
#include "gyre/base/file.h"

namespace gyre::cli {

namespace fs = std::filesystem;

namespace {

/// Also where nothing is yet.
fs::path behind_links(const fs::path& path) {
  constexpr int kMostLinks = 40;  // As the kernel's.
  fs::path target = path;
  for (int links = 0;; ++links) {
    std::error_code failure;
    const fs::path next = fs::read_symlink(target, failure);
    if (failure) return target;
    if (links == kMostLinks) throw system_error(fmt::format("cannot write {}", path.string()), ELOOP);
    target = target.parent_path() / next;
  }
}

}  // namespace

void write_output(const std::string& path, std::span<const std::byte> bytes) {
  std::error_code failure;
  const fs::file_status status = fs::status(path, failure);
  if (fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status)) {
    const std::string what = fmt::format("cannot write {}", path);
    const UniqueFd file(::open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC));
    if (!file) throw system_error(what, errno);
    write_all(file.get(), bytes, what);
    return;
  }
  write_file_atomically(behind_links(path), bytes);
}

}  // namespace gyre::cli
