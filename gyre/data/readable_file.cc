#include "gyre/data/readable_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/base/file.h"

namespace gyre::data {
namespace {

class LocalFile : public ReadableFile {
 public:
  LocalFile(std::string path, UniqueFd fd, std::uint64_t size_bytes)
      : path_(std::move(path)), fd_(std::move(fd)), size_bytes_(size_bytes) {}

  const std::string& name() const override { return path_; }
  std::uint64_t size_bytes() const override { return size_bytes_; }

  void read_at(std::uint64_t offset_bytes, std::span<std::byte> into) const override {
    while (!into.empty()) {
      const ssize_t count = ::pread(fd_.get(), into.data(), into.size(), static_cast<off_t>(offset_bytes));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw system_error(fmt::format("cannot read {} at byte {}", path_, offset_bytes), errno);
      if (count == 0) {
        throw Error(ErrorCode::kCorruptData, fmt::format("{} ends at byte {}, where {} more bytes were expected", path_,
                                                         offset_bytes, into.size()));
      }
      into = into.subspan(static_cast<std::size_t>(count));
      offset_bytes += static_cast<std::uint64_t>(count);
    }
  }

 private:
  std::string path_;
  UniqueFd fd_;
  std::uint64_t size_bytes_;
};

}  // namespace

std::unique_ptr<const ReadableFile> open_local_file(const std::string& path) {
  const std::string what = fmt::format("cannot read {}", path);
  // A pipe of that name must not hold us up until somebody writes into it.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) throw system_error(what, errno);
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0) throw system_error(what, errno);
  if (!S_ISREG(status.st_mode)) throw Error(ErrorCode::kInvalidArgument, what + ": it is not a regular file");
  return std::make_unique<LocalFile>(path, std::move(fd), static_cast<std::uint64_t>(status.st_size));
}

}  // namespace gyre::data
