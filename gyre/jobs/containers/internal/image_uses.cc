#include "gyre/jobs/containers/internal/image_uses.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "gyre/base/error.h"
#include "gyre/jobs/containers/container_runtime.h"

namespace gyre::jobs::containers::internal {

namespace fs = std::filesystem;

UniqueFd ImageUses::locked(const std::string& key, int operation) const {
  std::error_code failure;
  fs::create_directories(folder_, failure);
  if (failure) throw system_error(fmt::format("cannot make {}", folder_.string()), failure.value());
  const fs::path path = folder_ / key;
  for (;;) {
    UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file) throw system_error(fmt::format("cannot open {}", path.string()), errno);
    if (::flock(file.get(), operation) != 0) return {};
    // Somebody may have removed it in between, with its image.
    struct stat opened{};
    struct stat there{};
    if (::fstat(file.get(), &opened) == 0 && ::stat(path.c_str(), &there) == 0 && opened.st_ino == there.st_ino) {
      return file;
    }
  }
}

UniqueFd ImageUses::use(const std::string& key) const {
  UniqueFd file = locked(key, LOCK_SH);  // A removal takes seconds.
  if (file) ::futimens(file.get(), nullptr);
  return file;
}

UniqueFd ImageUses::take(const std::string& key) const { return locked(key, LOCK_EX | LOCK_NB); }

void ImageUses::forget(const std::string& key) const {
  std::error_code ignored;
  fs::remove(folder_ / key, ignored);
}

fs::file_time_type ImageUses::last_use(const std::string& key) const {
  std::error_code failure;
  const auto time = fs::last_write_time(folder_ / key, failure);
  return failure ? fs::file_time_type::min() : time;
}

std::vector<BuiltImage> built_images_of(const std::string& list) {
  const auto read = nlohmann::json::parse(list, nullptr, false);
  std::vector<BuiltImage> images;
  if (!read.is_array()) return images;
  for (const auto& image : read) {
    if (!image.is_object() || !image.contains("Names") || !image["Names"].is_array()) continue;
    const auto size = image.find("Size");
    for (const auto& name : image["Names"]) {
      if (!name.is_string() || !name.get<std::string>().starts_with(kBuiltImages)) continue;
      const std::string key = name.get<std::string>().substr(std::string_view(kBuiltImages).size());
      const bool counted = size != image.end() && size->is_number_unsigned();
      images.push_back({.key = key, .bytes = counted ? size->get<std::uint64_t>() : 0, .used = {}});
    }
  }
  return images;
}

}  // namespace gyre::jobs::containers::internal
