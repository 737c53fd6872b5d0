#include "gyre/store/staging/stage_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>

#include "gyre/base/boot.h"
#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"

namespace gyre::store {

namespace {

/// Some ten million files.
constexpr std::uint64_t kMostLogBytes = std::uint64_t{1} << 30;
constexpr std::size_t kChecksumDigits = 8;

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
  append("boot " + boot_id());
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
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (const auto words = checked(line)) read_line(*words);
  }
}

void StageLog::read_line(std::string_view line) {
  const std::string words(line);
  if (words.starts_with("boot ")) {
    this_boot_ = words == "boot " + boot_id();
    return;
  }
  if (words == "synced") {
    for (auto& [key, record] : records_) {
      if (record.done) record.done->trusted = true;
      for (auto& [number, part] : record.parts) part.trusted = true;
    }
    return;
  }
  std::uint64_t key = 0;
  std::uint32_t number = 0;
  Part part{.trusted = this_boot_};
  if (std::sscanf(words.c_str(), "part %" SCNx64 " %" SCNu32 " %" SCNx32, &key, &number, &part.crc32c) == 3) {
    records_[key].parts[number] = part;
  }
  Done done{.trusted = this_boot_};
  if (std::sscanf(words.c_str(), "done %" SCNx64 " %" SCNu64 " %" SCNd64 " %" SCNx32, &key, &done.bytes,
                  &done.changed_ns, &done.crc32c) == 4) {
    records_[key].done = done;
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

void StageLog::add_done(std::uint64_t key, const Done& done) {
  append(fmt::format("done {:016x} {} {} {:08x}", key, done.bytes, done.changed_ns, done.crc32c));
}

void StageLog::add_sync() { append("synced"); }

}  // namespace gyre::store
