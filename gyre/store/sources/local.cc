#include "gyre/store/sources/local.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "gyre/base/error.h"
#include "gyre/base/file.h"

namespace gyre::store {

namespace {

namespace fs = std::filesystem;

/// A link to a folder above it would never end.
constexpr int kMostDepth = 64;

std::string version_of(const struct stat& status) {
  return fmt::format("{}.{:09}-{}", status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_size);
}

class LocalReader : public ObjectReader {
 public:
  LocalReader(fs::path root, const ReadLimits& limits) : root_(std::move(root)), limits_(limits) {}

  ReadOutcome read(const Object& object, std::uint64_t offset_bytes, std::span<std::byte> into) override {
    const std::string path = (root_ / object.name).string();
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd) throw system_error("cannot read " + path, errno);
    check(fd.get(), object, path);
    std::size_t done = 0;
    while (done < into.size()) {
      if (limits_.stop.stop_requested()) throw Error(ErrorCode::kAborted, "reading " + path + " was stopped");
      const auto piece = into.subspan(done, std::min(into.size() - done, kPieceBytes));
      if (limits_.rate != nullptr) limits_.rate->pass(piece.size(), limits_.stop);
      const ssize_t count = ::pread(fd.get(), piece.data(), piece.size(), static_cast<off_t>(offset_bytes + done));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw system_error("cannot read " + path, errno);
      if (count == 0) throw changed(path);
      done += static_cast<std::size_t>(count);
    }
    check(fd.get(), object, path);  // It may have been written to meanwhile.
    return {.bytes = done};
  }

 private:
  static constexpr std::size_t kPieceBytes = 4 << 20;

  static Error changed(const std::string& path) {
    return {ErrorCode::kCorruptData, fmt::format("cannot read {}: it has changed since it was listed", path)};
  }

  static void check(int fd, const Object& object, const std::string& path) {
    struct stat status{};
    if (::fstat(fd, &status) != 0) throw system_error("cannot read " + path, errno);
    if (!S_ISREG(status.st_mode) || version_of(status) != object.version) throw changed(path);
  }

  fs::path root_;
  ReadLimits limits_;
};

class LocalSource : public Source {
 public:
  explicit LocalSource(const fs::path& path) : path_(fs::absolute(path).lexically_normal()) {
    if (path_.filename().empty() && path_.has_parent_path()) path_ = path_.parent_path();
    name_ = path_.string();
    root_ = path_;
  }

  const std::string& name() const override { return name_; }

  std::vector<Object> list(const ReadLimits&, std::chrono::milliseconds) override {
    struct stat status{};
    if (::stat(path_.c_str(), &status) != 0) throw system_error("cannot list " + name_, errno);
    std::vector<Object> objects;
    if (S_ISDIR(status.st_mode)) {
      root_ = path_;
      add_folder(path_, "", 0, objects);
    } else {
      root_ = path_.parent_path();
      add_file(path_, path_.filename().string(), objects);
    }
    std::ranges::sort(objects, {}, &Object::name);
    if (objects.empty()) throw Error(ErrorCode::kNotFound, name_ + " holds no files");
    return objects;
  }

  std::unique_ptr<ObjectReader> reader(const ReadLimits& limits) const override {
    return std::make_unique<LocalReader>(root_, limits);
  }

 private:
  void add_file(const fs::path& path, std::string name, std::vector<Object>& objects) const {
    struct stat status{};
    if (::stat(path.c_str(), &status) != 0) {
      const int why = errno;
      std::error_code failure;
      if (why == ENOENT && fs::is_symlink(path, failure)) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("{} is a link to {}, which is not there; remove the link, or bring its file back",
                                path.string(), fs::read_symlink(path, failure).string()));
      }
      throw system_error("cannot list " + path.string(), why);
    }
    if (!S_ISREG(status.st_mode)) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("cannot read {}: it is neither a file nor a folder", path.string()));
    }
    objects.push_back({.name = std::move(name),
                       .size_bytes = static_cast<std::uint64_t>(status.st_size),
                       .version = version_of(status)});
  }

  void add_folder(const fs::path& folder, const std::string& prefix, int depth, std::vector<Object>& objects) const {
    if (depth > kMostDepth) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("cannot list {}: its folders do not end; is there a link to one above?", name_));
    }
    std::error_code failure;
    fs::directory_iterator entries(folder, failure);
    if (failure) throw system_error("cannot list " + folder.string(), failure.value());
    for (const fs::directory_entry& entry : entries) {
      const std::string name = prefix + entry.path().filename().string();
      if (entry.is_directory(failure)) {
        add_folder(entry.path(), name + "/", depth + 1, objects);
      } else {
        add_file(entry.path(), name, objects);
      }
    }
  }

  fs::path path_;
  std::string name_;
  fs::path root_;
};

}  // namespace

std::unique_ptr<Source> open_local_source(const std::filesystem::path& path) {
  return std::make_unique<LocalSource>(path);
}

}  // namespace gyre::store
