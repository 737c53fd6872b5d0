#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace gyre::data {

/// A part of a file.
struct FileRange {
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
};

/// A file that is read in ranges, wherever it lies. Immutable while it is open; thread-safe.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;

  /// For messages.
  virtual const std::string& name() const = 0;
  virtual std::uint64_t size_bytes() const = 0;
  /// Another one when a file of this name has other contents: an ETag, or size and time of change. Empty where that is
  /// not known.
  virtual std::string version() const { return {}; }
  /// Fills `into` with the bytes from `offset_bytes` on. Errors name the file: kCorruptData where it ends before, or
  /// where its source says that it has changed (a local file system does not); kIo.
  virtual void read_at(std::uint64_t offset_bytes, std::span<std::byte> into) const = 0;
  /// These parts will be read soon, the first one first: a file that lies far away begins to fetch them. Returns at
  /// once, and never fails.
  virtual void will_read(std::span<const FileRange> /*ranges*/) const {}
  /// Whether a part can be read without waiting for a server. It may have to be, all the same, a moment later.
  virtual bool is_here(const FileRange& /*range*/) const { return true; }
};

/// What stands under a name. Links count as what they lead to.
enum class FileKind : std::uint8_t { kMissing, kFile, kFolder, kOther };

/// What stands in a folder.
struct FolderEntry {
  std::string name;  ///< In its folder.
  FileKind kind = FileKind::kFile;
  std::string leads_to{};  ///< Of a link that leads nowhere (kMissing).
};

/// Where files lie in folders. Thread-safe.
class Folders {
 public:
  virtual ~Folders() = default;

  /// Error only where that cannot be found out: kIo, kAuthentication.
  virtual FileKind kind(const std::string& name) const = 0;
  /// In any order. Error(kNotFound, kIo, kAuthentication).
  virtual std::vector<FolderEntry> list(const std::string& folder) const = 0;
  /// The same for two names of one folder, of which one leads there by a link.
  virtual std::string real_name(const std::string& folder) const { return folder; }
  /// Whether files may be so far away that readings are worth an announcement (ReadableFile::will_read()).
  virtual bool are_far() const { return false; }
};

/// Those of this machine.
const std::shared_ptr<const Folders>& local_folders();

/// How the readers of this folder get at files by their names, and at the names in folders; used by several threads at
/// once.
class FileOpener {
 public:
  using Open = std::function<std::unique_ptr<const ReadableFile>(const std::string& name)>;

  FileOpener(Open open, std::shared_ptr<const Folders> folders)
      : open_(std::move(open)), folders_(std::move(folders)) {}
  /// With this machine's folders.
  template <typename Callable>
    requires(std::constructible_from<Open, Callable> && !std::same_as<std::remove_cvref_t<Callable>, FileOpener>)
  FileOpener(Callable&& open)  // NOLINT(google-explicit-constructor): a function is an opener.
      : FileOpener(Open(std::forward<Callable>(open)), local_folders()) {}

  std::unique_ptr<const ReadableFile> operator()(const std::string& name) const { return open_(name); }
  const Folders& folders() const { return *folders_; }

 private:
  Open open_;
  std::shared_ptr<const Folders> folders_;
};

/// A regular file of this machine; its version is its size and the time of its last change. Error(kNotFound, kIo,
/// kInvalidArgument where it is no regular file).
std::unique_ptr<const ReadableFile> open_local_file(const std::string& path);

}  // namespace gyre::data
