#include "gyre/base/folders.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/base/file.h"

namespace gyre {

void make_folder_without_links(const std::filesystem::path& folder) {
  UniqueFd at(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  std::filesystem::path reached = "/";
  for (const std::filesystem::path& part : folder.lexically_normal().relative_path()) {
    if (part.empty()) continue;
    reached /= part;
    const bool is_there = ::mkdirat(at.get(), part.c_str(), 0755) == 0 || errno == EEXIST;
    UniqueFd next(is_there ? ::openat(at.get(), part.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1);
    if (!next) throw system_error(fmt::format("cannot make the folder {}", reached.string()), errno);
    at = std::move(next);
  }
}

}  // namespace gyre
