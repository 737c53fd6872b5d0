#include "gyre/jobs/node/code.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/jobs/node/internal/tar.h"

namespace gyre::jobs::node {

namespace {

namespace fs = std::filesystem;
using internal::TarEntry;

/// A file in memory.
class MappedFile {
 public:
  explicit MappedFile(int file) {
    struct stat status{};
    if (::fstat(file, &status) != 0) fail();
    size_ = static_cast<std::size_t>(status.st_size);
    if (size_ == 0) return;
    start_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
    if (start_ == MAP_FAILED) fail();
  }
  ~MappedFile() {
    if (size_ > 0) ::munmap(start_, size_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(start_), size_}; }

 private:
  [[noreturn]] static void fail() { throw system_error("cannot read the archive of the job's code", errno); }

  void* start_ = nullptr;
  std::size_t size_ = 0;
};

[[noreturn]] void refuse_folder(const std::string& path) {
  throw Error(ErrorCode::kCorruptData,
              fmt::format("the archive of code is not usable: '{}' is a folder where there is something else", path));
}

[[noreturn]] void refuse_size(const CodeLimits& limits) {
  throw Error(ErrorCode::kResourceExhausted,
              fmt::format("the job's code has more than {} entries or {} MB", limits.entries, limits.bytes >> 20));
}

class Unpacker {
 public:
  explicit Unpacker(const fs::path& folder) : folder_(folder) {
    if (::mkdir(folder.c_str(), 0755) != 0) fail("");
    root_ = UniqueFd(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!root_) fail("");
  }

  void add(const TarEntry& entry) {
    if (entry.path == ".") return;
    const fs::path path(entry.path);
    const UniqueFd parent = enter(path.parent_path());
    const std::string name = path.filename().string();
    if (entry.kind == TarEntry::Kind::kFolder) {
      static_cast<void>(enter_one(parent.get(), name, entry.path));
    } else if (entry.kind == TarEntry::Kind::kLink) {
      if (::symlinkat(entry.link.c_str(), parent.get(), name.c_str()) != 0) fail(entry.path);
    } else {
      write(entry, parent.get(), name);
    }
  }

 private:
  [[noreturn]] void fail(const std::string& path) const {
    throw system_error(fmt::format("cannot unpack the job's code to {}", (folder_ / path).string()), errno);
  }

  /// Made where it is missing. A link of that name is refused.
  UniqueFd enter_one(int folder, const std::string& name, const std::string& path) const {
    if (::mkdirat(folder, name.c_str(), 0755) != 0 && errno != EEXIST) fail(path);
    UniqueFd entered(::openat(folder, name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (entered) return entered;
    refuse_folder(path);
  }

  UniqueFd enter(const fs::path& path) const {
    UniqueFd at(::openat(root_.get(), ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!at) fail(path.string());
    for (const fs::path& part : path) at = enter_one(at.get(), part.string(), path.string());
    return at;
  }

  void write(const TarEntry& entry, int parent, const std::string& name) const {
    const UniqueFd file(::openat(parent, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file) fail(entry.path);
    write_all(file.get(), entry.content, (folder_ / entry.path).string());
    if (::fchmod(file.get(), entry.executable ? 0755 : 0644) != 0) fail(entry.path);
    const timespec times[2] = {{.tv_sec = entry.modified_s, .tv_nsec = 0}, {.tv_sec = entry.modified_s, .tv_nsec = 0}};
    ::futimens(file.get(), times);  // For people; nothing depends on it.
  }

  fs::path folder_;
  UniqueFd root_;
};

/// What an Unpacker would find in its folder, without the folder.
class Outline {
 public:
  void add(const TarEntry& entry) {
    if (entry.path == ".") return;
    const fs::path path(entry.path);
    fs::path above;
    for (const fs::path& part : path.parent_path()) put_folder(above /= part);
    if (entry.kind == TarEntry::Kind::kFolder) return put_folder(path);
    if (!kinds_.emplace(path.string(), entry.kind).second) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("the archive of code is not usable: '{}' comes twice", entry.path));
    }
  }
  std::size_t size() const { return kinds_.size(); }

 private:
  void put_folder(const fs::path& path) {
    const auto [known, is_new] = kinds_.emplace(path.string(), TarEntry::Kind::kFolder);
    if (known->second != TarEntry::Kind::kFolder) refuse_folder(path.string());
  }

  std::unordered_map<std::string, TarEntry::Kind> kinds_;
};

template <typename Visit>
void for_each_entry(std::span<const std::byte> archive, const CodeLimits& limits, const Visit& visit) {
  internal::TarReader reader(archive);
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;
  for (auto entry = reader.next(); entry; entry = reader.next()) {
    bytes += entry->content.size();
    if (++entries > limits.entries || bytes > limits.bytes) refuse_size(limits);
    visit(*entry);
  }
}

}  // namespace

void unpack_code(int archive, const std::string& sha256_digits, const fs::path& folder, const CodeLimits& limits) {
  const MappedFile file(archive);
  if (hex(sha256(file.bytes())) != sha256_digits) {
    throw Error(ErrorCode::kCorruptData, "the job's code is not what was uploaded: its SHA-256 is another one");
  }
  // Under its name only when it is whole: whoever unpacks it may be killed.
  const fs::path draft = folder.string() + ".part";
  fs::remove_all(draft);
  try {
    Unpacker unpacker(draft);
    for_each_entry(file.bytes(), limits, [&](const TarEntry& entry) { unpacker.add(entry); });
    fs::rename(draft, folder);
  } catch (const std::exception&) {
    std::error_code ignored;
    fs::remove_all(draft, ignored);
    throw;
  }
}

void check_code(int archive, const CodeLimits& limits) {
  const MappedFile file(archive);
  Outline outline;
  for_each_entry(file.bytes(), limits, [&](const TarEntry& entry) {
    outline.add(entry);
    if (outline.size() > limits.entries) refuse_size(limits);  // Folders that only longer names have, too.
  });
}

std::string digest_of_code(int archive, std::optional<std::vector<std::string>> paths) {
  const MappedFile file(archive);
  const auto is_below = [](const std::string& path, const std::string& folder) {
    return path == folder || path == folder + "/" || path.starts_with(folder + "/");
  };
  for_each_entry(file.bytes(), {}, [&](const TarEntry& entry) {
    if (!paths || entry.kind != TarEntry::Kind::kLink) return;
    const std::string link = fs::path(entry.path).lexically_normal().string();
    const auto leads_away = [&](const std::string& each) { return is_below(link, each) || is_below(each, link); };
    if (std::ranges::any_of(*paths, leads_away)) paths.reset();
  });
  std::vector<std::string> lines;
  for_each_entry(file.bytes(), {}, [&](const TarEntry& entry) {
    const std::string path = fs::path(entry.path).lexically_normal().string();
    if (paths && std::ranges::none_of(*paths, [&](const std::string& each) { return is_below(path, each); })) return;
    // Ends of texts are told by zeros, which none has in it.
    lines.push_back(fmt::format("{}{}{}{}{}{}{}", static_cast<int>(entry.kind), entry.executable ? 'x' : '-', path,
                                '\0', entry.link, '\0', hex(sha256(entry.content))));
  });
  std::ranges::sort(lines);
  std::string whole;
  for (const std::string& line : lines) whole += line;
  return hex(sha256(as_bytes(whole)));
}

CodeContent::CodeContent(int archive) {
  const auto file = std::make_shared<const MappedFile>(archive);
  archive_ = file;
  internal::TarReader reader(file->bytes());
  for (auto entry = reader.next(); entry; entry = reader.next()) {
    if (entry->kind == TarEntry::Kind::kFolder) continue;
    const bool is_link = entry->kind == TarEntry::Kind::kLink;
    entries_.emplace(fs::path(entry->path).lexically_normal().string(),
                     Entry{is_link ? entry->link : std::string(), entry->content});
  }
}

const CodeContent::Entry* CodeContent::find(const std::string& path) const {
  const auto found = entries_.find(path);
  return found == entries_.end() ? nullptr : &found->second;
}

const CodeContent::Entry* CodeContent::file(std::string path) const {
  constexpr int kMostLinks = 40;  // As the kernel has it.
  for (int followed = 0; followed <= kMostLinks; ++followed) {
    path = fs::path(path).lexically_normal().string();
    std::string leads;
    for (std::size_t end = path.find('/'); leads.empty(); end = path.find('/', end + 1)) {
      const fs::path part = path.substr(0, end);
      const Entry* entry = find(part.string());
      if (entry != nullptr && !entry->link.empty()) {
        leads = (part.parent_path() / entry->link).string() + (end == std::string::npos ? "" : path.substr(end));
      } else if (end == std::string::npos) {
        return entry;
      }
    }
    path = std::move(leads);
  }
  return nullptr;
}

}  // namespace gyre::jobs::node
