#include "gyre/jobs/node/internal/work_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <set>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/file.h"
#include "gyre/cli/table.h"
#include "gyre/jobs/spec/file_pattern.h"
#include "gyre/jobs/spec/job_spec.h"

namespace gyre::jobs::node::internal {

namespace {

namespace fs = std::filesystem;

/// A descriptor for each folder on the way.
constexpr int kDeepest = 128;
constexpr std::size_t kReadAtOnce = std::size_t{64} << 10;

const char* kind_of(const struct stat& status) {
  if (S_ISLNK(status.st_mode)) return "a link";
  if (S_ISFIFO(status.st_mode)) return "a pipe";
  return S_ISSOCK(status.st_mode) ? "a socket" : "a device";
}

/// The service shows no other names: they are text in its addresses.
bool can_be_downloaded(const std::string& path) {
  return cli::printable(path) == path && path.find('\\') == std::string::npos;
}

/// Python makes them anew.
bool is_python_cache(const std::string& path) { return ("/" + path).find("/__pycache__/") != std::string::npos; }

class Keeper {
 public:
  Keeper(const WorkFiles& files, const Interruption& interruption) : files_(files), interruption_(interruption) {
    for (const std::string& text : files.patterns) patterns_.emplace_back(text);
    found_.resize(patterns_.size());
    for (const fs::path& other : files.others) leave_out(other);
  }

  WorkFilesReport keep() {
    Folder root;
    root.fd = UniqueFd(::open(files_.folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat status{};
    if (!root.fd || ::fstat(root.fd.get(), &status) != 0) {
      fail(".", 0, reason_of(errno));
    } else {
      device_ = status.st_dev;
      walk(root);
    }
    for (std::size_t i = 0; i < patterns_.size(); ++i) {
      if (!found_[i]) report_.unmatched.push_back(cli::printable(patterns_[i].text()));
    }
    return std::move(report_);
  }

 private:
  struct Folder {
    UniqueFd fd;
    Folder* above = nullptr;
    std::string name{};
    std::string below{};  ///< "a/b/": in front of the paths of what is in it.
    int depth = 0;
    UniqueFd copy{};  ///< The folder for its files' copies, once there is one.
  };

  void fail(const std::string& path, std::uint64_t bytes, const std::string& why) {
    report_.failed.add(path, bytes, why);
  }

  void leave_out(const fs::path& other) {
    struct stat status{};
    if (::lstat(other.c_str(), &status) == 0) left_out_.emplace(status.st_dev, status.st_ino);
  }

  void walk(Folder& folder) {
    UniqueFd again(::fcntl(folder.fd.get(), F_DUPFD_CLOEXEC, 0));
    const std::unique_ptr<DIR, int (*)(DIR*)> names(again ? ::fdopendir(again.get()) : nullptr, ::closedir);
    if (!names) return fail(folder.below, 0, reason_of(errno));
    again.release();
    while (report_.interrupted.empty()) {
      errno = 0;
      const dirent* entry = ::readdir(names.get());
      if (entry == nullptr && errno != 0) fail(folder.below, 0, reason_of(errno));
      if (entry == nullptr) return;
      const std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      report_.interrupted = interruption_();
      look_at(folder, name);
    }
  }

  void look_at(Folder& folder, const std::string& name) {
    struct stat status{};
    const std::string path = folder.below + name;
    if (::fstatat(folder.fd.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno != ENOENT) fail(path, 0, reason_of(errno));
      return;
    }
    if (left_out_.contains({status.st_dev, status.st_ino})) return;
    if (S_ISDIR(status.st_mode)) return enter(folder, name);
    const auto bytes = S_ISREG(status.st_mode) ? static_cast<std::uint64_t>(status.st_size) : 0;
    if (is_as_unpacked(folder, name, path, status)) return;
    if (!matches(path)) {
      const bool is_cache = is_python_cache(path) || (files_.is_home && path.front() == '.');
      if (S_ISREG(status.st_mode) && !is_cache) report_.left.add(path, bytes);
      return;
    }
    if (!S_ISREG(status.st_mode)) return fail(path, 0, kind_of(status));
    if (!can_be_downloaded(path)) return fail(path, bytes, "it cannot be downloaded under this name");
    const CopyResult copied = copy(folder, name);
    if (copied.disk_is_full) no_more_copies_ = copied.problem;
    if (copied.exists) report_.kept.add(path, bytes);
    if (!copied.problem.empty()) fail(path, bytes, copied.problem);
  }

  void enter(Folder& above, const std::string& name) {
    Folder folder;
    folder.above = &above;
    folder.name = name;
    folder.below = above.below + name + "/";
    folder.depth = above.depth + 1;
    if (folder.depth > kDeepest) return fail(folder.below, 0, fmt::format("more than {} folders deep", kDeepest));
    folder.fd = open_in(above.fd.get(), name, O_RDONLY | O_DIRECTORY);
    struct stat status{};
    if (!folder.fd || ::fstat(folder.fd.get(), &status) != 0) return fail(folder.below, 0, reason_of(errno));
    if (status.st_dev != device_) return fail(folder.below, 0, "another file system");
    walk(folder);
  }

  static UniqueFd open_in(int folder, const std::string& name, int flags) {
    return UniqueFd(::openat(folder, name.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  }

  /// Whether it is what came with the job's code.
  bool is_as_unpacked(const Folder& folder, const std::string& name, const std::string& path,
                      const struct stat& status) const {
    const CodeContent::Entry* known = files_.code == nullptr ? nullptr : files_.code->find(path);
    if (known == nullptr) return false;
    if (S_ISLNK(status.st_mode)) {
      std::string link(known->link.size() + 1, '\0');
      const ssize_t length = ::readlinkat(folder.fd.get(), name.c_str(), link.data(), link.size());
      return length > 0 && known->link == link.substr(0, static_cast<std::size_t>(length));
    }
    if (!S_ISREG(status.st_mode) || !known->link.empty()) return false;
    return static_cast<std::size_t>(status.st_size) == known->content.size() &&
           holds(open_in(folder.fd.get(), name, O_RDONLY), known->content);
  }

  static bool holds(const UniqueFd& file, std::span<const std::byte> content) {
    Bytes bytes(kReadAtOnce);
    while (file && !content.empty()) {
      const ssize_t count = ::read(file.get(), bytes.data(), std::min(bytes.size(), content.size()));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      const auto read = static_cast<std::size_t>(count);
      if (std::memcmp(bytes.data(), content.data(), read) != 0) return false;
      content = content.subspan(read);
    }
    return static_cast<bool>(file);
  }

  /// Asks every pattern: those that nothing matches are reported.
  bool matches(const std::string& path) {
    bool any = false;
    for (std::size_t i = 0; i < patterns_.size(); ++i) {
      if (!patterns_[i].matches(path)) continue;
      found_[i] = true;
      any = true;
    }
    return any;
  }

  CopyResult copy(Folder& folder, const std::string& name) {
    if (!no_more_copies_.empty()) return {.problem = no_more_copies_};
    // What was a file may be anything by now.
    const UniqueFd file = open_in(folder.fd.get(), name, O_RDONLY);
    if (!file) return {.problem = errno == ELOOP ? "a link" : reason_of(errno)};
    struct stat status{};
    if (::fstat(file.get(), &status) != 0) return {.problem = reason_of(errno)};
    if (!S_ISREG(status.st_mode)) return {.problem = kind_of(status)};
    const int to = copy_of(folder);
    if (to < 0) return {.problem = reason_of(errno), .disk_is_full = errno == ENOSPC || errno == EDQUOT};
    return copy_file(file.get(), to, name, interruption_);
  }

  /// The folder for the copies of what is in `folder`; -1 with errno.
  int copy_of(Folder& folder) {
    if (folder.copy) return folder.copy.get();
    if (folder.above == nullptr) {
      // Not through a link that the job has left there: that is removed as such.
      std::error_code failure;
      fs::remove_all(files_.kept, failure);
      if (::mkdir(files_.kept.c_str(), 0755) != 0) return -1;
      folder.copy = UniqueFd(::open(files_.kept.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      leave_out(files_.kept);  // It may lie in the folder that is walked.
    } else {
      const int above = copy_of(*folder.above);
      if (above < 0 || (::mkdirat(above, folder.name.c_str(), 0755) != 0 && errno != EEXIST)) return -1;
      folder.copy = open_in(above, folder.name, O_RDONLY | O_DIRECTORY);
    }
    return folder.copy.get();
  }

  const WorkFiles& files_;
  const Interruption& interruption_;
  std::vector<spec::FilePattern> patterns_;
  std::vector<bool> found_;  // By pattern.
  std::set<std::pair<dev_t, ino_t>> left_out_;
  dev_t device_ = 0;
  std::string no_more_copies_;  // Why.
  WorkFilesReport report_;
};

/// "model.pt, log.csv, …"
std::string names_of(const FileCount& count) {
  return fmt::format("{}{}", fmt::join(count.names, ", "), count.files > count.names.size() ? ", …" : "");
}

/// "3 files in the job's work folder (1.2 MB) are"
std::string files_are(const FileCount& count) {
  const bool one = count.files == 1;
  return fmt::format("{} file{} in the job's work folder ({}) {}", count.files, one ? "" : "s",
                     cli::shown_bytes(count.bytes), one ? "is" : "are");
}

}  // namespace

void FileCount::add(const std::string& path, std::uint64_t bytes_more, const std::string& why) {
  constexpr std::size_t kLongestName = 80;
  ++files;
  bytes += bytes_more;
  std::string name = path;
  if (name.size() > kLongestName) {  // Its end says more.
    std::size_t begin = name.size() - kLongestName;
    while (begin < name.size() && (static_cast<unsigned char>(name[begin]) & 0xc0U) == 0x80) ++begin;
    name = "…" + name.substr(begin);
  }
  name = cli::printable(name);
  if (!why.empty()) name += fmt::format(" ({})", why);
  names.insert(std::ranges::upper_bound(names, name), name);
  if (names.size() > kMostNames) names.pop_back();
}

std::string sentence_about_outputs(const std::string& id, const FileCount& files) {
  const bool one = files.files == 1;
  return fmt::format(
      "{} file{} ({}) in output directory '{}' {} not kept: {}; it lies in each node's own folder, and only the first "
      "node's is kept; an output directory on a mount is one for all nodes",
      files.files, one ? "" : "s", cli::shown_bytes(files.bytes), id, one ? "is" : "are", names_of(files));
}

WorkFilesReport keep_work_files(const WorkFiles& files, const Interruption& interruption) {
  return Keeper(files, interruption).keep();
}

std::vector<std::string> sentences_of(const WorkFilesReport& report) {
  std::vector<std::string> sentences;
  if (report.failed.files > 0) {
    sentences.push_back(fmt::format(
        "{} in the job's work folder could not be read or copied in full: {}",
        report.failed.files == 1 ? "one file or folder" : fmt::format("{} files or folders", report.failed.files),
        names_of(report.failed)));
  }
  if (report.left.files > 0) {
    sentences.push_back(fmt::format("{} not kept: {}; `--output PATTERN` keeps such files", files_are(report.left),
                                    names_of(report.left)));
  }
  if (!report.interrupted.empty()) {
    sentences.push_back(fmt::format("not all of the job's work folder was looked at: {}", report.interrupted));
  }
  if (!report.unmatched.empty()) {
    const auto first = std::min(report.unmatched.size(), FileCount::kMostNames);
    sentences.push_back(fmt::format("no file that the job has written into its work folder matches --output '{}'{}",
                                    fmt::join(std::span(report.unmatched).first(first), "', '"),
                                    first < report.unmatched.size() ? ", …" : ""));
  }
  if (report.kept.files > 0) {
    sentences.push_back(fmt::format("{} kept in output directory '{}': {}", files_are(report.kept), spec::kKeptFiles,
                                    names_of(report.kept)));
  }
  return sentences;
}

}  // namespace gyre::jobs::node::internal
