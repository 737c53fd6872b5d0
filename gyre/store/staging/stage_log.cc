#include "gyre/store/staging/stage_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <iterator>
#include <utility>

#include "gyre/base/boot.h"
#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"

namespace gyre::store {

namespace {

/// Some ten million files.
constexpr std::uint64_t kMostLogBytes = std::uint64_t{1} << 30;
constexpr std::size_t kChecksumDigits = 8;
/// Of its lines. Those without a number were written until November 2026.
constexpr int kFormat = 2;

/// A line without its checksum; nothing where that is wrong: what a kill, or a full disk, left of it.
std::optional<std::string> checked(std::string_view line) {
  if (line.size() <= kChecksumDigits + 1) return std::nullopt;
  const std::string_view words = line.substr(0, line.size() - kChecksumDigits - 1);
  if (fmt::format("{:08x}", crc32c(as_bytes(words))) != line.substr(words.size() + 1)) return std::nullopt;
  return std::string(words);
}

}  // namespace

StageLog::StageLog(const std::filesystem::path& folder) : path_((folder / "log").string()) {
  fd_ = UniqueFd(::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!fd_) throw system_error("cannot write " + path_, errno);
  if (::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) throw system_error("cannot lock " + path_, errno);
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("another `gyre stage` is writing to {}; wait for it, or name another folder",
                            folder.parent_path().string()));
  }
  read();
  // A line that was cut off must not swallow the next one.
  append("");
  append(fmt::format("boot {} format {}", boot_id(), kFormat));
}

std::size_t StageLog::older_files() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(records_, [](const auto& known) { return known.second.done && known.second.done->older; }));
}

std::uint64_t StageLog::key_of(const Manifest& manifest, const ManifestEntry& entry) {
  ByteWriter writer;
  const Object& object = entry.object;
  for (const std::string* text : {&manifest.sources[entry.source], &object.name, &object.version, &entry.target}) {
    writer.u32(static_cast<std::uint32_t>(text->size()));
    writer.text(*text);
  }
  writer.u64(object.size_bytes);
  writer.u8(static_cast<std::uint8_t>(entry.compression));
  return xxh3_64(writer.result());
}

std::optional<StageLog::Record> StageLog::find(const Manifest& manifest, const ManifestEntry& entry) const {
  if (entry.object.version.empty()) return std::nullopt;
  const auto found = records_.find(key_of(manifest, entry));
  return found == records_.end() ? std::nullopt : std::optional(found->second);
}

void StageLog::read() {
  const Bytes bytes = read_file(path_, kMostLogBytes);
  std::string_view text = as_text(bytes);
  std::vector<Section> sections(1);
  std::size_t number = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (const auto words = checked(line)) read_line(number, *words, sections);
    ++number;
  }
  const auto section_of = [&sections](std::size_t line) {
    return *std::prev(std::ranges::upper_bound(sections, line, {}, &Section::begin));
  };
  const auto is_trusted = [&section_of](std::size_t line) {
    const Section section = section_of(line);
    return !section.older && (section.this_boot || line < section.synced);
  };
  for (auto& [key, record] : records_) {
    if (record.done) {
      record.done->trusted = is_trusted(record.done->line);
      record.done->older = section_of(record.done->line).older;
    }
    for (auto* parts : {&record.parts, &record.beginnings}) {
      for (auto& [part_number, part] : *parts) part.trusted = is_trusted(part.line);
    }
  }
  for (auto& [name, brought] : brought_) brought.done.trusted = is_trusted(brought.done.line);
}

void StageLog::read_line(std::size_t number, const std::string& words, std::vector<Section>& sections) {
  Section& section = sections.back();
  if (words.starts_with("boot ")) {
    const std::string ours = fmt::format("boot {}", boot_id());
    int format = 1;
    std::sscanf(words.c_str(), "boot %*s format %d", &format);
    if (format > kFormat) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("a newer Gyre has staged there, and this one cannot read {} (format {}); use the newer "
                              "one, or name another folder",
                              path_, format));
    }
    sections.push_back({.begin = number, .this_boot = words.starts_with(ours), .older = format < kFormat});
    return;
  }
  if (words == "syncing") {
    section.syncing = number;
    return;
  }
  if (words == "synced") {
    section.synced = std::exchange(section.syncing, std::nullopt).value_or(section.synced);
    return;
  }
  if (std::sscanf(words.c_str(), "set %" SCNx64, &section.set) == 1) return;
  std::uint64_t key = 0;
  std::uint32_t part_number = 0;
  int used = 0;
  Part part{.line = number};
  Done done{.line = number};
  if (std::sscanf(words.c_str(), "part %" SCNx64 " %" SCNu32 " %" SCNx32, &key, &part_number, &part.crc32c) == 3) {
    records_[key].parts[part_number] = part;
  } else if (std::sscanf(words.c_str(), "beginning %" SCNx64 " %" SCNu32 " %" SCNu64 " %" SCNx32, &key, &part_number,
                         &part.bytes, &part.crc32c) == 4) {
    records_[key].beginnings[part_number] = part;
  } else if (std::sscanf(words.c_str(), "begun %" SCNx64, &key) == 1) {
    records_[key].parts.clear();
    records_[key].beginnings.clear();
  } else if (std::sscanf(words.c_str(), "done %" SCNx64 " %" SCNu64 " %" SCNd64 " %" SCNx32 " %n", &key, &done.bytes,
                         &done.changed_ns, &done.crc32c, &used) == 4) {
    records_[key] = {.done = done};
    const std::string name = words.substr(static_cast<std::size_t>(used));
    if (!name.empty()) brought_[name] = {.done = done, .set = section.set};
  }
}

void StageLog::append(const std::string& words) {
  const std::string line = words.empty() ? "\n" : fmt::format("{} {:08x}\n", words, crc32c(as_bytes(words)));
  const MutexLock lock(mutex_);
  write_all(fd_.get(), as_bytes(line), "cannot write " + path_);
}

void StageLog::add_part(std::uint64_t key, std::uint32_t part, std::uint32_t crc32c) {
  append(fmt::format("part {:016x} {} {:08x}", key, part, crc32c));
}

void StageLog::add_beginning(std::uint64_t key, std::uint32_t part, std::uint64_t bytes, std::uint32_t crc32c) {
  append(fmt::format("beginning {:016x} {} {} {:08x}", key, part, bytes, crc32c));
}

void StageLog::add_done(std::uint64_t key, const Done& done, const std::string& target) {
  append(fmt::format("done {:016x} {} {} {:08x} {}", key, done.bytes, done.changed_ns, done.crc32c, target));
}

void StageLog::begin_set(std::uint64_t set) { append(fmt::format("set {:016x}", set)); }

void StageLog::begin_parts(std::uint64_t key) { append(fmt::format("begun {:016x}", key)); }

void StageLog::begin_sync() { append("syncing"); }

void StageLog::end_sync() { append("synced"); }

}  // namespace gyre::store
