#include "gyre/store/staging/stage_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/data/readable_file.h"

namespace gyre::store {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPieceBytes = 4 << 20;

void make_folders(const fs::path& folder) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) throw system_error("cannot make the folder " + folder.string(), failure.value());
}

std::int64_t changed_ns(const struct stat& status) {
  return std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

}  // namespace

StageFolder::StageFolder(const fs::path& folder) : folder_(fs::absolute(folder).lexically_normal()) {
  make_folders(own() / "parts");
  fd_ = UniqueFd(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd_) throw system_error("cannot open the folder " + folder_.string(), errno);
}

fs::path StageFolder::stored_part(std::uint64_t key) const { return own() / "parts" / fmt::format("{:016x}", key); }

fs::path StageFolder::written_part(std::uint64_t key) const {
  return own() / "parts" / fmt::format("{:016x}.new", key);
}

StageLog::Done StageFolder::publish(const fs::path& part, const std::string& target_name, std::uint32_t crc32c) const {
  const fs::path file = target(target_name);
  if (file.parent_path() != folder_) make_folders(file.parent_path());
  struct stat status{};
  if (::stat(part.c_str(), &status) != 0) throw system_error("cannot read " + part.string(), errno);
  if (::rename(part.c_str(), file.c_str()) != 0) throw system_error("cannot write " + file.string(), errno);
  return {.bytes = static_cast<std::uint64_t>(status.st_size),
          .changed_ns = changed_ns(status),
          .crc32c = crc32c,
          .trusted = true};
}

bool StageFolder::holds(const StageLog::Done& done, const std::string& target_name) const {
  const fs::path file = target(target_name);
  struct stat status{};
  if (::stat(file.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  if (static_cast<std::uint64_t>(status.st_size) != done.bytes || changed_ns(status) != done.changed_ns) return false;
  return done.trusted || crc32c_of_file(file, 0, done.bytes) == done.crc32c;
}

std::uint64_t StageFolder::free_bytes() const {
  struct statvfs status{};
  if (::fstatvfs(fd_.get(), &status) != 0)
    throw system_error("cannot tell the free space of " + folder_.string(), errno);
  return std::uint64_t{status.f_bavail} * status.f_frsize;
}

void StageFolder::sync() const {
  if (::syncfs(fd_.get()) != 0) throw system_error("cannot bring " + folder_.string() + " to the disk", errno);
}

void StageFolder::remove_parts() const {
  std::error_code failure;
  for (const fs::directory_entry& entry : fs::directory_iterator(own() / "parts", failure))
    fs::remove(entry.path(), failure);
}

UniqueFd open_for_writing(const fs::path& path, bool empty) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | (empty ? O_TRUNC : 0), 0644));
  if (!fd) throw system_error("cannot write " + path.string(), errno);
  return fd;
}

void begin_writeback(int fd) {
  // Where a file system cannot do it, the sync does all.
  static_cast<void>(::sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE));
}

void write_at(int fd, std::span<const std::byte> bytes, std::uint64_t offset_bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset_bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error("cannot write " + path.string(), errno);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset_bytes += static_cast<std::uint64_t>(count);
  }
}

std::uint32_t crc32c_of_file(const fs::path& path, std::uint64_t offset_bytes, std::uint64_t size_bytes) {
  const auto file = data::open_local_file(path.string());
  Bytes piece(std::min<std::uint64_t>(kPieceBytes, size_bytes));
  std::uint32_t sum = 0;
  for (std::uint64_t done = 0; done < size_bytes;) {
    const auto into = std::span(piece).first(std::min<std::uint64_t>(piece.size(), size_bytes - done));
    file->read_at(offset_bytes + done, into);
    sum = crc32c(into, sum);
    done += into.size();
  }
  return sum;
}

}  // namespace gyre::store
