#include "gyre/metrics/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <set>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/metrics/internal/block.h"

namespace gyre::metrics {
namespace {

constexpr std::string_view kMagic = "gyremet1";
constexpr std::size_t kLongestNote = 64'000;
/// Of a file of at least kSmallestWithReserve: for notes and events, when samples have filled the rest.
constexpr std::uint64_t kReserve = std::uint64_t{512} << 10;
constexpr std::uint64_t kSmallestWithReserve = 8 * kReserve;
constexpr std::size_t kReadBytes = std::size_t{1} << 20;
constexpr std::string_view kOtherWriter = "another run is writing it";

bool is_locked(int file) {
  if (::flock(file, LOCK_SH | LOCK_NB) != 0) return true;
  ::flock(file, LOCK_UN);
  return false;
}

bool has_writer(const std::filesystem::path& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  return file && ::flock(file.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

std::size_t read_some(int file, std::span<std::byte> into, const std::string& what) {
  for (;;) {
    const ssize_t count = ::read(file, into.data(), into.size());
    if (count >= 0) return static_cast<std::size_t>(count);
    if (errno != EINTR) throw system_error(fmt::format("cannot read {}", what), errno);
  }
}

Error not_metrics(std::string_view what) {
  return {ErrorCode::kCorruptData, fmt::format("{} is not a metrics file of Gyre", what)};
}

/// A file that was killed before its first bytes were complete counts as empty.
bool begins_well(std::span<const std::byte> bytes) {
  return as_text(bytes.first(std::min(bytes.size(), kMagic.size()))) == kMagic.substr(0, bytes.size());
}

Error cannot_write(const std::filesystem::path& path, std::string_view why) {
  return {ErrorCode::kInvalidArgument, fmt::format("cannot write {}: {}", path.string(), why)};
}

/// Error if something else than a metrics file is there: a device, a pipe, somebody's text.
void check_is_metrics(const std::filesystem::path& path) {
  struct stat there{};
  if (::stat(path.c_str(), &there) != 0) return;  // A link that leads nowhere.
  if (S_ISDIR(there.st_mode)) throw system_error(fmt::format("cannot write {}", path.string()), EISDIR);
  if (!S_ISREG(there.st_mode)) throw cannot_write(path, "it is a device or a pipe, and metrics need a file");
  if (has_writer(path)) throw cannot_write(path, kOtherWriter);
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) throw system_error(fmt::format("cannot read {}", path.string()), errno);
  Bytes beginning(kMagic.size());
  beginning.resize(read_some(file.get(), beginning, path.string()));
  if (!begins_well(beginning)) throw cannot_write(path, "there is a file that is not one of metrics; name another");
}

/// Moves the file of an earlier job out of the way; empty if there is none.
std::filesystem::path move_away(const std::filesystem::path& path) {
  struct stat there{};
  if (::lstat(path.c_str(), &there) != 0) return {};
  check_is_metrics(path);
  for (int number = 1;; ++number) {
    std::filesystem::path target = path;
    target += fmt::format(".{}", number);
    if (::lstat(target.c_str(), &there) == 0) continue;
    if (::rename(path.c_str(), target.c_str()) != 0) {
      throw system_error(fmt::format("cannot rename {}", path.string()), errno);
    }
    return target;
  }
}

/// Gives the blocks of consecutive pieces of a file to a visitor.
class BlockReader {
 public:
  explicit BlockReader(FileVisitor& visitor) : visitor_(visitor) {}

  /// How many of the first `bytes` were whole blocks. damaged() tells whether a block behind them was wrong, rather
  /// than cut off.
  std::size_t take(std::span<const std::byte> bytes) {
    std::size_t taken = 0;
    while (!damaged_) {
      const auto body = body_of_first_block(bytes.subspan(taken));
      if (!body) {
        damaged_ = bytes.size() - taken >= kBlockHeader + kMostBodyBytes;
        break;
      }
      if (!give(*body)) break;
      taken += kBlockHeader + body->size();
    }
    return taken;
  }
  bool damaged() const { return damaged_; }

 private:
  bool give(std::span<const std::byte> body) {
    DecodedBlock block;
    try {
      block = decode_block(body, names_);
    } catch (const Error&) {
      damaged_ = true;
      return false;
    }
    for (const Sample& sample : block.samples) visitor_.sample(sample);
    if (block.note) visitor_.note(block.note->first, block.note->second);
    if (block.event) visitor_.event(*block.event);
    return true;
  }

  FileVisitor& visitor_;
  std::vector<std::string> names_;
  bool damaged_ = false;
};

/// Between the position in the file and its end.
std::uint64_t bytes_behind(int file) {
  struct stat status{};
  const off_t here = ::lseek(file, 0, SEEK_CUR);
  if (here < 0 || ::fstat(file, &status) != 0) return 0;
  return status.st_size > here ? static_cast<std::uint64_t>(status.st_size - here) : 0;
}

std::vector<Sample> within_most_series(std::span<const Sample> samples, const NameNumbers& names) {
  std::vector<Sample> kept;
  std::set<std::string_view> new_names;
  for (const Sample& sample : samples) {
    const bool known = names.contains(sample.name) || new_names.contains(sample.name);
    if (!known && names.size() + new_names.size() == kMostSeries) continue;
    if (!known) new_names.insert(sample.name);
    kept.push_back(sample);
  }
  return kept;
}

}  // namespace

FileWriter::FileWriter(const std::filesystem::path& path, std::uint64_t limit_bytes)
    : path_(path), earlier_(move_away(path)), limit_bytes_(limit_bytes) {
  file_ = UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666));
  if (!file_ && errno == EEXIST) throw cannot_write(path, kOtherWriter);  // It has just begun.
  if (!file_) throw system_error(fmt::format("cannot write {}", path.string()), errno);
  ::flock(file_.get(), LOCK_EX | LOCK_NB);  // Where the file system can.
  append(as_bytes(kMagic));
}

bool FileWriter::append(std::span<const std::byte> block, std::uint64_t leave) {
  if (size_ + block.size() + leave > limit_bytes_) return false;
  try {
    write_all(file_.get(), block, fmt::format("cannot write {}", path_.string()));
  } catch (const Error&) {
    // Behind a part of a block nothing would be found again.
    if (::ftruncate(file_.get(), static_cast<off_t>(size_)) != 0) limit_bytes_ = 0;
    throw;
  }
  size_ += block.size();
  return true;
}

void FileWriter::add(std::span<const Sample> samples) {
  std::vector<Sample> kept;
  if (names_.size() + samples.size() > kMostSeries) {
    kept = within_most_series(samples, names_);
    dropped_ += samples.size() - kept.size();
    samples = kept;
  }
  while (!samples.empty()) {
    const EncodedSamples encoded = encode_samples(samples, names_, kBlockHeader + kMostBodyBytes);
    if (!append(encoded.block, limit_bytes_ >= kSmallestWithReserve ? kReserve : 0)) {
      dropped_ += samples.size();
      return;
    }
    for (const std::string_view name : encoded.new_names) names_.emplace(name, names_.size());
    samples = samples.subspan(encoded.count);
  }
}

void FileWriter::note(std::string_view key, std::string_view value) {
  append(encode_note(key, value.substr(0, kLongestNote)));
}

void FileWriter::event(std::string_view line) { append(encode_event(line)); }

std::uint64_t read_metrics(std::span<const std::byte> bytes, std::string_view what, FileVisitor& visitor) {
  if (!begins_well(bytes)) throw not_metrics(what);
  if (bytes.size() < kMagic.size()) return bytes.size();
  BlockReader reader(visitor);
  const auto blocks = bytes.subspan(kMagic.size());
  return blocks.size() - reader.take(blocks);
}

struct FileReader::State {
  std::string path;
  UniqueFd file;
  BlockReader blocks;
  Bytes held{};        ///< What no whole block was found in.
  bool begun = false;  ///< Behind the first bytes of the file.
};

FileReader::FileReader(const std::filesystem::path& path, FileVisitor& visitor)
    : FileReader(UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), path.string(), visitor) {}

FileReader::FileReader(UniqueFd file, std::string what, FileVisitor& visitor) {
  if (!file) throw system_error(fmt::format("cannot read {}", what), errno);
  state_ = std::make_unique<State>(State{std::move(what), std::move(file), BlockReader(visitor)});
}

FileReader::~FileReader() = default;

std::uint64_t FileReader::read() {
  State& at = *state_;
  Bytes buffer(kReadBytes);  // Not kept: a server has many readers.
  std::size_t held = at.held.size();
  std::ranges::copy(at.held, buffer.begin());
  while (!at.blocks.damaged()) {
    const std::size_t count = read_some(at.file.get(), std::span(buffer).subspan(held), at.path);
    held += count;
    const auto bytes = std::span<const std::byte>(buffer).first(held);
    if (!at.begun && !begins_well(bytes)) throw not_metrics(at.path);
    std::size_t taken = 0;
    if (at.begun || held >= kMagic.size()) {
      const std::size_t head = at.begun ? 0 : kMagic.size();
      taken = head + at.blocks.take(bytes.subspan(head));
      at.begun = true;
    }
    std::ranges::copy(bytes.subspan(taken), buffer.begin());
    held -= taken;
    if (count == 0) break;
  }
  at.held.assign(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(held));
  return held + bytes_behind(at.file.get());
}

bool FileReader::was_cut() const {
  struct stat status{};
  const off_t here = ::lseek(state_->file.get(), 0, SEEK_CUR);
  return here >= 0 && ::fstat(state_->file.get(), &status) == 0 && status.st_size < here;
}

bool FileReader::is_written() const { return is_locked(state_->file.get()); }

bool is_metrics_file(const std::filesystem::path& path) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return false;
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return false;
  Bytes beginning(kMagic.size());
  return read_some(file.get(), beginning, path.string()) == kMagic.size() && begins_well(beginning);
}

std::uint64_t read_metrics(const std::filesystem::path& path, FileVisitor& visitor) {
  return FileReader(path, visitor).read();
}

}  // namespace gyre::metrics
