#include "gyre/jobs/hub/log_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/jobs/hub/internal/log_index.h"
#include "gyre/jobs/orders/messages.h"

namespace gyre::jobs::hub {

namespace fs = std::filesystem;
using internal::LogHome;
using internal::LogIndex;
using internal::LogSegment;
using internal::LogStream;
using orders::kNothingWanted;
using orders::LogPiece;
using orders::LogPlace;
using orders::WorkOrder;
namespace message_type = orders::message_type;

namespace {

constexpr const char* kIndex = "streams";
constexpr const char* kLogFolder = "stdouterr";
constexpr std::chrono::milliseconds kRoomHolds{1'000};
/// Nodes keep within their shares, each with a line that says so.
constexpr std::uint64_t kMostBeyondOfNode = std::uint64_t{64} << 10;

fs::path job_folder(const fs::path& store, const std::string& attempt) { return store / orders::job_of(attempt); }

std::string folder_in_job(const WorkOrder& order) { return (fs::path(order.path_segment) / kLogFolder).string(); }

std::uint64_t size_of(const fs::path& file) {
  struct stat status{};
  return ::lstat(file.c_str(), &status) == 0 && S_ISREG(status.st_mode) ? static_cast<std::uint64_t>(status.st_size)
                                                                        : 0;
}

UniqueFd open_file(const fs::path& path) {
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file) throw system_error(fmt::format("cannot write {}", path.string()), errno);
  return file;
}

void write_at(const fs::path& path, std::span<const std::byte> bytes, std::uint64_t at) {
  const UniqueFd file = open_file(path);
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error(fmt::format("cannot write {}", path.string()), errno);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    at += static_cast<std::uint64_t>(count);
  }
}

}  // namespace

fs::path received_logs(const fs::path& store, const WorkOrder& order) {
  return job_folder(store, order.attempt) / folder_in_job(order);
}

void make_log_folder(const fs::path& store, const WorkOrder& order) {
  std::error_code failure;
  fs::create_directories(received_logs(store, order), failure);
  if (!failure) fs::permissions(store, fs::perms::owner_all, failure);  // Those who may read them ask the service.
  if (failure) {
    throw system_error(fmt::format("cannot make the folder {}", received_logs(store, order).string()), failure.value());
  }
}

/// Its place in the job's file; there only while it is the file's.
struct LogStore::Stream {
  LogSegment segment;
  std::uint64_t offset = 0;  ///< All before it is written, or was dropped.
};

struct LogStore::Job {
  explicit Job(const fs::path& folder) : path(folder), index(folder / kIndex) {}

  fs::path file(const LogHome& home, const std::string& name) const { return path / home.folder / name; }

  const fs::path path;
  LogIndex index;
  std::map<LogStream, Stream> streams;
  std::optional<std::uint64_t> bytes;  ///< Of all its logs; nothing: not counted yet.
};

LogStore::LogStore(LogStoreOptions options) : options_(std::move(options)) {}
LogStore::~LogStore() = default;

void LogStore::expect(const WorkOrder& order) {
  if (options_.folder.empty() || !order.sends_logs || orders::job_of(order.attempt).empty()) return;
  WorkOrder& kept = expected_[order.attempt];
  kept.attempt = order.attempt;
  kept.attempt_number = order.attempt_number;
  kept.path_segment = order.path_segment;
  kept.log_bytes = order.log_bytes;
  kept.nodes.resize(order.nodes.size());
}

void LogStore::release(const std::string& attempt) {
  expected_.erase(attempt);
  jobs_.erase(orders::job_of(attempt));  // Another attempt's streams are opened again.
}

LogStore::Job* LogStore::find_job(const std::string& attempt) {
  if (options_.folder.empty() || orders::job_of(attempt).empty()) return nullptr;
  const auto expected = expected_.find(attempt);
  const fs::path folder = job_folder(options_.folder, attempt);
  if (!jobs_.contains(orders::job_of(attempt))) {
    std::error_code ignored;
    if (expected == expected_.end() && !fs::exists(folder / kIndex, ignored)) return nullptr;
    if (expected != expected_.end()) make_log_folder(options_.folder, expected->second);
    jobs_[orders::job_of(attempt)] = std::make_unique<Job>(folder);
  }
  Job* job = jobs_.at(orders::job_of(attempt)).get();
  if (job->index.home(attempt) == nullptr) {
    if (expected == expected_.end()) return nullptr;
    const WorkOrder& order = expected->second;
    make_log_folder(options_.folder, order);
    const std::uint64_t beyond = kMostBeyondOfNode * order.nodes.size();
    job->index.add(attempt, {.number = order.attempt_number,
                             .folder = folder_in_job(order),
                             .most_bytes = order.log_bytes == 0 ? 0 : order.log_bytes + beyond});
  }
  if (!job->bytes) {
    job->bytes = 0;
    for (const auto& entry : fs::directory_iterator(folder / job->index.home(attempt)->folder)) {
      *job->bytes += size_of(entry.path());
    }
  }
  return job;
}

/// One that another one has pushed out goes on elsewhere.
LogStore::Stream& LogStore::begin(Job& job, const LogStream& key) {
  const LogHome& home = *job.index.home(key.attempt);
  auto segment = job.index.current(key);
  if (!segment) {
    const std::string name = job.index.free_name(key);
    segment = LogSegment{.name = name, .base = size_of(job.file(home, name)), .start = job.index.pushed_out_at(key)};
    job.index.put(key, *segment);
    static_cast<void>(open_file(job.file(home, name)));
  }
  const std::uint64_t size = std::max(size_of(job.file(home, segment->name)), segment->base);
  Stream& stream = job.streams[key];
  stream = {.segment = *segment, .offset = segment->start + size - segment->base};
  return stream;
}

LogStore::Answer LogStore::open(const std::string& node, const LogPlace& place) {
  const auto from = [&](std::uint64_t offset) -> Answer {
    return {message_type::kLogFrom, {place.attempt, place.file, offset}};
  };
  Job* job = nullptr;
  try {
    job = find_job(place.attempt);
    if (job == nullptr || job->index.is_full()) return from(kNothingWanted);
    return from(begin(*job, {place.attempt, node, place.file}).offset);
  } catch (const std::exception& error) {
    if (job != nullptr) {
      fill(*job, {}, place.attempt, error.what());
    } else if (expected_.erase(place.attempt) > 0) {
      notes_.push_back({place.attempt, fmt::format("its logs cannot be kept on the server: {}", error.what())});
    }
    return from(kNothingWanted);
  }
}

LogStore::Answer LogStore::write(const std::string& node, const LogPiece& piece) {
  const LogPlace& place = piece.place;
  const std::uint64_t end = place.offset + piece.bytes.size();
  const auto answer = [&](std::uint16_t type, std::uint64_t offset) -> Answer {
    return {type, {place.attempt, place.file, offset}};
  };
  const auto job = jobs_.find(orders::job_of(place.attempt));
  if (job == jobs_.end()) return open(node, place);
  if (job->second->index.is_full()) return answer(message_type::kLogTaken, end);
  const LogStream key{place.attempt, node, place.file};
  const auto stream = job->second->streams.find(key);
  // It was not opened since this service began, or another stream has its file.
  if (stream == job->second->streams.end() || !job->second->index.current(key)) return open(node, place);
  if (place.offset > stream->second.offset) return answer(message_type::kLogFrom, stream->second.offset);
  if (end > stream->second.offset) write_in(*job->second, stream->second, piece);
  return answer(message_type::kLogTaken, stream->second.offset);
}

void LogStore::write_in(Job& job, Stream& stream, const LogPiece& piece) {
  const LogHome& home = *job.index.home(piece.place.attempt);
  const auto bytes = piece.bytes.subspan(stream.offset - piece.place.offset);
  const std::uint64_t room =
      home.most_bytes == 0 ? bytes.size() : home.most_bytes - std::min(home.most_bytes, *job.bytes);
  const auto kept = bytes.first(std::min<std::size_t>(bytes.size(), room));
  const std::uint64_t end = stream.offset + bytes.size();
  try {
    if (!disk_has_room(kept.size())) {
      fill(job, stream, piece.place.attempt, "the disk of the server is as full as it may become (--keep-free)");
    } else {
      write_at(job.file(home, stream.segment.name), kept, stream.segment.base + stream.offset - stream.segment.start);
      *job.bytes += kept.size();
      stream.offset += kept.size();
      if (kept.size() < bytes.size()) {
        fill(
            job, stream, piece.place.attempt,
            fmt::format("the job's logs have reached the {} bytes that the server lets a job's logs have (`gyre server "
                        "--limit job-logs`)",
                        home.most_bytes));
      }
    }
  } catch (const Error& error) {
    fill(job, stream, piece.place.attempt, error.what());
  }
  stream.offset = end;
}

void LogStore::fill(Job& job, const Stream& stream, const std::string& attempt, const std::string& why) {
  notes_.push_back({attempt, fmt::format("the job's logs are cut off on the server: {}; the job goes on", why)});
  const std::string mark = fmt::format("\n[gyre: this log is cut off here: {}; the job goes on]\n", why);
  try {
    job.index.set_full();
    if (stream.segment.name.empty()) return;
    write_at(job.file(*job.index.home(attempt), stream.segment.name), as_bytes(mark),
             stream.segment.base + stream.offset - stream.segment.start);
  } catch (const Error&) {
    return;  // A full disk has no room for either. The note says it.
  }
}

bool LogStore::disk_has_room(std::uint64_t bytes) {
  if (options_.keep_free_bytes == 0) return true;
  if (room_known_until_.passed() || room_ < bytes) {
    struct statvfs status{};
    if (::statvfs(options_.folder.c_str(), &status) != 0) return true;
    const std::uint64_t free = static_cast<std::uint64_t>(status.f_bavail) * status.f_frsize;
    room_ = free - std::min(free, options_.keep_free_bytes);
    room_known_until_ = Deadline::after(kRoomHolds);
  }
  if (room_ < bytes) return false;
  room_ -= bytes;
  return true;
}

LogStore::Answer LogStore::cut(const std::string& node, const LogPlace& place) {
  Answer there = open(node, place);
  if (there.place.offset >= kNothingWanted || there.place.offset <= place.offset) return there;
  Job& job = *jobs_.at(orders::job_of(place.attempt));
  const LogStream key{place.attempt, node, place.file};
  Stream& stream = job.streams.at(key);
  const LogHome& home = *job.index.home(place.attempt);
  const fs::path file = job.file(home, stream.segment.name);
  try {
    const std::uint64_t kept = std::max(place.offset, stream.segment.start) - stream.segment.start;
    *job.bytes -= std::min(*job.bytes, stream.offset - stream.segment.start - kept);
    if (::truncate(file.c_str(), static_cast<off_t>(stream.segment.base + kept)) != 0) {
      throw system_error(fmt::format("cannot cut {}", file.string()), errno);
    }
    if (place.offset < stream.segment.start) {
      // What lies in an earlier file stays there.
      stream.segment.start = place.offset;
      job.index.put(key, stream.segment);
    }
    stream.offset = place.offset;
    there.place.offset = place.offset;
  } catch (const Error& error) {
    fill(job, stream, place.attempt, error.what());
    there.place.offset = kNothingWanted;
  }
  return there;
}

void LogStore::finish(const std::string& node, const std::string& attempt) {
  const auto job = jobs_.find(orders::job_of(attempt));
  if (job == jobs_.end()) return;
  std::erase_if(job->second->streams, [&](const auto& entry) {
    const auto& [key, stream] = entry;
    if (key.attempt != attempt || key.node != node) return false;
    const fs::path path = job->second->file(*job->second->index.home(attempt), stream.segment.name);
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (file) ::fdatasync(file.get());
    return true;
  });
  const UniqueFd index(::open((job->second->path / kIndex).c_str(), O_RDONLY | O_CLOEXEC));
  if (index) ::fdatasync(index.get());
  if (!expected_.contains(attempt) && job->second->streams.empty()) jobs_.erase(job);
}

std::vector<LogStore::Note> LogStore::take_notes() { return std::exchange(notes_, {}); }

}  // namespace gyre::jobs::hub
