#include "gyre/metrics/pipe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/metrics/internal/block.h"

namespace gyre::metrics {
namespace {

/// The kernel writes as much in one piece, or not at all.
constexpr std::size_t kMostMessageBytes = PIPE_BUF;
/// Of the pipe; the most that the kernel gives to everybody.
constexpr int kPipeBytes = 1 << 20;
constexpr std::chrono::milliseconds kLongestFlush{1'000};

/// Until it is destroyed, a write to a pipe that nobody reads raises no SIGPIPE in this thread.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    ::sigpending(&pending);
    was_pending_ = ::sigismember(&pending, SIGPIPE) == 1;
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoPipeSignal() {
    constexpr timespec kNow{};
    if (raised && !was_pending_) ::sigtimedwait(&pipe_, nullptr, &kNow);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;

  bool raised = false;

 private:
  sigset_t pipe_{};
  sigset_t before_{};
  bool was_pending_ = false;
};

std::vector<Sample> samples_of(std::span<const Value> values, int rank, std::int64_t step) {
  const std::int64_t now = wall_clock_us();
  std::vector<Sample> samples;
  samples.reserve(values.size());
  for (const Value& value : values) samples.push_back({value.name, rank, step, now, value.value});
  return samples;
}

}  // namespace

std::shared_ptr<Logger> Logger::inherited(int descriptor, int rank) {
  struct stat status{};
  if (::fstat(descriptor, &status) != 0 || !S_ISFIFO(status.st_mode)) return nullptr;
  const int flags = ::fcntl(descriptor, F_GETFL);
  if ((flags & O_ACCMODE) != O_WRONLY || (flags & O_NONBLOCK) == 0) return nullptr;  // Programs' own pipes block.
  UniqueFd copy(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!copy) throw system_error("cannot copy the descriptor for metrics", errno);
  return std::make_shared<Logger>(std::move(copy), rank);
}

Logger::~Logger() { flush(Deadline::after(kLongestFlush)); }

void Logger::log(std::span<const Value> values, std::int64_t step) {
  for (const Value& value : values) check_users_name(value.name);
  send(values, step);
}

void Logger::log_own(std::span<const Value> values, std::int64_t step) { send(values, step); }

void Logger::send(std::span<const Value> values, std::int64_t step) {
  if (values.empty()) return;
  const std::vector<Sample> samples = samples_of(values, rank_, step);
  const MutexLock lock(mutex_);
  forget_what_a_parent_sends();
  if (launcher_has_gone_) return;
  send_dropped();
  latest_step_ = step;
  send_blocks(samples);
}

void Logger::send_dropped() {
  if (dropped_ == 0 || !write_waiting()) return;
  all_dropped_ += std::exchange(dropped_, 0);
  const Value dropped{kDroppedName, static_cast<double>(all_dropped_)};
  send_blocks(samples_of({&dropped, 1}, rank_, latest_step_));
}

void Logger::send_blocks(std::span<const Sample> samples) {
  const bool in_order = write_waiting();
  while (!samples.empty()) {
    EncodedSamples encoded = encode_samples(samples, {}, kMostMessageBytes);
    if (!in_order || !waiting_.empty() || !write_block(encoded.block)) {
      if (waiting_bytes_ + encoded.block.size() > kMostWaitingBytes) {
        dropped_ += samples.size();
        return;
      }
      waiting_bytes_ += encoded.block.size();
      waiting_.push_back(std::move(encoded.block));
    }
    samples = samples.subspan(encoded.count);
  }
}

bool Logger::write_block(const Bytes& block) {
  if (launcher_has_gone_) return true;
  NoPipeSignal guard;
  for (;;) {
    const ssize_t written = ::write(write_end_.get(), block.data(), block.size());
    if (written >= 0) return true;  // All of it: see kMostMessageBytes.
    if (errno == EINTR) continue;
    if (errno == EAGAIN) return false;
    guard.raised = errno == EPIPE;
    launcher_has_gone_ = true;
    return true;
  }
}

bool Logger::write_waiting() {
  while (!waiting_.empty()) {
    if (!write_block(waiting_.front())) return false;
    waiting_bytes_ -= waiting_.front().size();
    waiting_.pop_front();
  }
  return true;
}

void Logger::forget_what_a_parent_sends() {
  const int here = ::getpid();
  if (process_ != here && process_ != 0) {
    waiting_.clear();
    waiting_bytes_ = 0;
    dropped_ = 0;
    all_dropped_ = 0;
  }
  process_ = here;
}

bool Logger::flush(Deadline deadline) {
  for (;;) {
    {
      const MutexLock lock(mutex_);
      forget_what_a_parent_sends();
      send_dropped();
      if (write_waiting()) return !launcher_has_gone_;
    }
    if (deadline.passed()) return false;
    pollfd room{.fd = write_end_.get(), .events = POLLOUT, .revents = 0};
    ::poll(&room, 1, deadline.poll_timeout_ms());
  }
}

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) throw system_error("cannot make a pipe for metrics", errno);
  Pipe pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
  // Where that is not allowed, ranks wait a little earlier.
  static_cast<void>(::fcntl(pipe.read_end.get(), F_SETPIPE_SZ, kPipeBytes));
  return pipe;
}

void BlockStream::take(std::span<const std::byte> bytes, const std::function<void(std::span<const Sample>)>& give) {
  held_.insert(held_.end(), bytes.begin(), bytes.end());
  std::size_t taken = 0;
  for (;;) {
    const auto rest = std::span<const std::byte>(held_).subspan(taken);
    if (rest.size() < kBlockHeader) break;
    const std::uint32_t size = ByteReader(rest, "metrics").u32();
    const auto body = body_of_first_block(rest);
    if (!body && size > 0 && size <= kMostBodyBytes && size > rest.size() - kBlockHeader) break;
    if (!body) throw Error(ErrorCode::kCorruptData, "what ranks have sent as metrics is not that");
    std::vector<std::string> names;
    give(decode_block(*body, names).samples);
    taken += kBlockHeader + body->size();
  }
  held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(taken));
}

Bytes blocks_of(std::span<const Sample> samples) {
  Bytes blocks;
  while (!samples.empty()) {
    const EncodedSamples encoded = encode_samples(samples, {}, kBlockHeader + kMostBodyBytes);
    blocks.insert(blocks.end(), encoded.block.begin(), encoded.block.end());
    samples = samples.subspan(encoded.count);
  }
  return blocks;
}

}  // namespace gyre::metrics
