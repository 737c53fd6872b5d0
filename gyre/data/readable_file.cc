#include "gyre/data/readable_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/base/file.h"

namespace gyre::data {
namespace {

namespace fs = std::filesystem;

class LocalFile : public ReadableFile {
 public:
  LocalFile(std::string path, UniqueFd fd, const struct stat& status)
      : path_(std::move(path)),
        fd_(std::move(fd)),
        size_bytes_(static_cast<std::uint64_t>(status.st_size)),
        changed_(status.st_mtim) {}

  const std::string& name() const override { return path_; }
  std::uint64_t size_bytes() const override { return size_bytes_; }
  std::string version() const override {
    return fmt::format("{}.{:09}-{}", changed_.tv_sec, changed_.tv_nsec, size_bytes_);
  }

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

  void will_read(std::span<const FileRange> ranges) const override {
    for (const FileRange& range : ranges) {
      static_cast<void>(::posix_fadvise(fd_.get(), static_cast<off_t>(range.offset_bytes),
                                        static_cast<off_t>(range.size_bytes), POSIX_FADV_WILLNEED));
    }
  }

 private:
  std::string path_;
  UniqueFd fd_;
  std::uint64_t size_bytes_;
  struct timespec changed_;
};

FileKind kind_of(fs::file_type type) {
  switch (type) {
    case fs::file_type::not_found: return FileKind::kMissing;
    case fs::file_type::regular: return FileKind::kFile;
    case fs::file_type::directory: return FileKind::kFolder;
    default: return FileKind::kOther;
  }
}

/// As the folder's listing says, without a look at each file that is no link.
FolderEntry entry_of(const fs::directory_entry& entry) {
  std::error_code ignored;
  FolderEntry found{.name = entry.path().filename().string(), .kind = FileKind::kOther};
  if (entry.is_directory(ignored)) {
    found.kind = FileKind::kFolder;
  } else if (entry.is_regular_file(ignored)) {
    found.kind = FileKind::kFile;
  } else if (entry.is_symlink(ignored) && entry.status(ignored).type() == fs::file_type::not_found) {
    found.kind = FileKind::kMissing;
    found.leads_to = fs::read_symlink(entry, ignored).string();
  }
  return found;
}

class LocalFolders : public Folders {
 public:
  FileKind kind(const std::string& name) const override {
    std::error_code ignored;
    return kind_of(fs::status(name, ignored).type());
  }

  std::vector<FolderEntry> list(const std::string& folder) const override {
    std::vector<FolderEntry> entries;
    std::error_code error;
    for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
         entry.increment(error)) {
      entries.push_back(entry_of(*entry));
    }
    if (error) throw system_error(fmt::format("cannot read the folder {}", folder), error.value());
    return entries;
  }

  std::string real_name(const std::string& folder) const override {
    std::error_code error;
    const fs::path found = fs::canonical(folder, error);
    if (error) throw system_error(fmt::format("cannot read the folder {}", folder), error.value());
    return found.string();
  }
};

}  // namespace

const std::shared_ptr<const Folders>& local_folders() {
  static const std::shared_ptr<const Folders> kFolders = std::make_shared<const LocalFolders>();
  return kFolders;
}

std::unique_ptr<const ReadableFile> open_local_file(const std::string& path) {
  const std::string what = fmt::format("cannot read {}", path);
  // A pipe of that name must not hold us up until somebody writes into it.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) throw system_error(what, errno);
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0) throw system_error(what, errno);
  if (!S_ISREG(status.st_mode)) throw Error(ErrorCode::kInvalidArgument, what + ": it is not a regular file");
  return std::make_unique<LocalFile>(path, std::move(fd), status);
}

}  // namespace gyre::data
