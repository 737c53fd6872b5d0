#include "gyre/jobs/client/code_archive.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/jobs/client/ignore_rules.h"
#include "gyre/jobs/client/secrets_in_code.h"

namespace gyre::jobs::client {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlock = 512;
constexpr std::size_t kMostRuleBytes = std::size_t{1} << 20;

// ---- a tar archive: 512-byte headers, names that are too long for one in an extended header before it

struct Entry {
  std::string name;
  char type = '0';  // '0' file, '5' folder, '2' link, 'x' extended header
  std::uint32_t mode = 0644;
  std::uint64_t size = 0;
  std::int64_t modified_s = 0;
  std::string link{};
};

void put(std::string& header, std::size_t at, std::size_t room, const std::string& text) {
  header.replace(at, std::min(room, text.size()), text.substr(0, room));
}

std::string header_of(const Entry& entry) {
  std::string header(kBlock, '\0');
  put(header, 0, 100, entry.name);
  put(header, 100, 8, fmt::format("{:07o}", entry.mode));
  put(header, 108, 8, "0000000");
  put(header, 116, 8, "0000000");
  put(header, 124, 12, fmt::format("{:011o}", entry.size));
  put(header, 136, 12, fmt::format("{:011o}", std::max<std::int64_t>(entry.modified_s, 0)));
  put(header, 148, 8, "        ");
  header[156] = entry.type;
  put(header, 157, 100, entry.link);
  put(header, 257, 8,
      std::string("ustar\0"
                  "00",
                  8));
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  put(header, 148, 8, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  return header;
}

void pad(std::string& archive) { archive.resize((archive.size() + kBlock - 1) / kBlock * kBlock, '\0'); }

/// "30 path=…\n": the number counts itself.
std::string pax_line(const std::string& key, const std::string& value) {
  const std::string rest = fmt::format(" {}={}\n", key, value);
  std::size_t length = rest.size() + 1;
  while (std::to_string(length).size() + rest.size() != length) length = std::to_string(length).size() + rest.size();
  return std::to_string(length) + rest;
}

void append(std::string& archive, const Entry& entry, const std::string& content) {
  constexpr std::size_t kLongestName = 100;
  std::string extended;
  if (entry.name.size() > kLongestName) extended += pax_line("path", entry.name);
  if (entry.link.size() > kLongestName) extended += pax_line("linkpath", entry.link);
  if (!extended.empty()) {
    archive += header_of({.name = "pax", .type = 'x', .size = extended.size()});
    archive += extended;
    pad(archive);
  }
  archive += header_of(entry);
  archive += content;
  pad(archive);
}

// ---- the folder

class Collector {
 public:
  explicit Collector(const fs::path& folder) : folder_(folder), rules_file_(rules_file_of(folder)) { walk(""); }

  CodeArchive take() {
    archive_.bytes.append(2 * kBlock, '\0');
    archive_.sha256 = hex(sha256(as_bytes(archive_.bytes)));
    return std::move(archive_);
  }

 private:
  /// The one that is in force there, or would be if it were there. A link is none, as for git.
  static const char* rules_file_of(const fs::path& folder) {
    std::error_code ignored;
    const auto is_there = [&](const char* name) {
      return fs::is_regular_file(fs::symlink_status(folder / name, ignored));
    };
    return !is_there(".gyreignore") && is_there(".gitignore") ? ".gitignore" : ".gyreignore";
  }

  static IgnoreRules rules_in(const fs::path& folder) {
    const fs::path file = folder / rules_file_of(folder);
    std::error_code ignored;
    if (!fs::is_regular_file(fs::symlink_status(file, ignored))) return IgnoreRules("");
    const Bytes text = read_file(file, kMostRuleBytes);
    return IgnoreRules(as_text(text));
  }

  void walk(const std::string& below) {
    std::vector<std::string> names;
    std::error_code failure;
    for (const auto& entry : fs::directory_iterator(folder_ / below, failure)) {
      names.push_back(entry.path().filename().string());
    }
    if (failure) throw system_error(fmt::format("cannot list {}", (folder_ / below).string()), failure.value());
    std::ranges::sort(names);
    rules_.push_back({rules_in(folder_ / below), below.empty() ? 0 : below.size() + 1});
    for (const std::string& name : names) add((fs::path(below) / name).string());
    rules_.pop_back();
  }

  /// The rules of the deepest folder that say something decide.
  bool leaves_out(std::string_view path, bool is_folder) const {
    for (auto each = rules_.rbegin(); each != rules_.rend(); ++each) {
      if (const auto out = each->rules.verdict(path.substr(each->begin), is_folder)) return *out;
    }
    return false;
  }

  void add(const std::string& path) {
    const fs::path file = folder_ / path;
    struct stat status{};
    if (::lstat(file.c_str(), &status) != 0) throw system_error(fmt::format("cannot read {}", file.string()), errno);
    const bool is_folder = S_ISDIR(status.st_mode);
    if (path == ".git" || leaves_out(path, is_folder)) return;
    Entry entry{.name = path, .modified_s = status.st_mtim.tv_sec};
    if (is_folder) {
      entry.name += '/';
      entry.type = '5';
      entry.mode = 0755;
      append(archive_.bytes, entry, "");
      return walk(path);
    }
    count(path, static_cast<std::uint64_t>(status.st_size));
    if (S_ISLNK(status.st_mode)) {
      entry.type = '2';
      entry.link = link_target(path, file);
      return append(archive_.bytes, entry, "");
    }
    if (!S_ISREG(status.st_mode)) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("{} is neither a file, a folder nor a link; leave it out in {}", file.string(), rules_file_));
    }
    const Bytes content = read_file(file, kMostCodeBytes);
    refuse_secrets(file, (status.st_mode & (S_IRWXG | S_IRWXO)) == 0, as_text(content));
    entry.size = content.size();
    entry.mode = (status.st_mode & S_IXUSR) != 0 ? 0755 : 0644;
    append(archive_.bytes, entry, std::string(as_text(content)));
  }

  /// Jobs of others may run on the same nodes as the same user.
  void refuse_secrets(const fs::path& file, bool is_private, std::string_view content) const {
    const std::string_view what = secret_in(file.filename().string(), is_private, content);
    if (what.empty()) return;
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} holds {}, and code is copied to every node; keep it in another folder, or leave it out "
                            "in {}",
                            file.string(), what, rules_file_));
  }

  std::string link_target(const std::string& path, const fs::path& file) const {
    const fs::path target = fs::read_symlink(file);
    const fs::path leads_to = (fs::path(path).parent_path() / target).lexically_normal();
    if (!target.is_absolute() && *leads_to.begin() != "..") return target.string();
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is a link to {}, out of the folder, which no node has; leave it out in {}, or put the "
                            "file there",
                            file.string(), target.string(), rules_file_));
  }

  void count(const std::string& path, std::uint64_t bytes) {
    ++archive_.files;
    bytes_ += bytes;
    bytes_of_[path.substr(0, path.find('/'))] += bytes;
    if (bytes_ <= kMostCodeBytes && archive_.files <= kMostCodeFiles) return;
    const auto largest = std::ranges::max_element(bytes_of_, {}, [](const auto& part) { return part.second; });
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} has more than {} MB or {} files; code is uploaded whole. The largest part so far is {} "
                            "({} MB): leave it out in {}, and put data on a mount",
                            folder_.string(), kMostCodeBytes >> 20, kMostCodeFiles, largest->first,
                            largest->second >> 20, rules_file_));
  }

  fs::path folder_;
  const char* rules_file_;
  struct FolderRules {
    IgnoreRules rules;
    std::size_t begin;  // Of paths relative to that folder, in those relative to the whole.
  };
  std::vector<FolderRules> rules_;  // From the whole folder down to the one that is walked through.
  CodeArchive archive_;
  std::uint64_t bytes_ = 0;
  std::map<std::string, std::uint64_t> bytes_of_;
};

}  // namespace

CodeArchive archive_code(const fs::path& folder) {
  std::error_code failure;
  if (!fs::is_directory(folder, failure)) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} is not a folder", folder.string()));
  }
  return Collector(folder).take();
}

}  // namespace gyre::jobs::client
