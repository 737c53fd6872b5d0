#include "gyre/jobs/containers/internal/image_copy.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string_view>

#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/pipe.h"
#include "gyre/base/process.h"

namespace gyre::jobs::containers::internal {

namespace {

constexpr std::size_t kPart = std::size_t{256} << 10;
constexpr std::size_t kMostWords = 4096;

/// What a program says, for when it has failed.
class Words {
 public:
  Words() : file_(::memfd_create("words", MFD_CLOEXEC)) {
    if (!file_) throw system_error("cannot make a file in memory", errno);
  }
  int fd() const { return file_.get(); }
  std::string text() const {
    std::array<char, kMostWords> bytes;
    const ssize_t count = ::pread(file_.get(), bytes.data(), bytes.size(), 0);
    return {bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0))};
  }

 private:
  UniqueFd file_;
};

/// What everything here has to keep to.
struct Bounds {
  Deadline deadline;
  const Interruption& interruption;

  /// Until the descriptor is ready.
  void await(int fd, short events) const {
    for (;;) {
      std::array<pollfd, 2> waits = {{{fd, events, 0}, {interruption.wake_fd, POLLIN, 0}}};
      const int ready = ::poll(waits.data(), waits.size(), deadline.poll_timeout_ms());
      if (ready < 0 && errno != EINTR) throw system_error("poll", errno);
      if (interruption.wanted && interruption.wanted()) throw Error(ErrorCode::kAborted, "the copy was given up");
      if (waits[0].revents != 0) return;
      if (deadline.passed()) throw Error(ErrorCode::kTimeout, "the image could not be copied in time");
    }
  }
};

/// False: its reader has gone.
bool write_to(const UniqueFd& pipe, std::string_view bytes, const Bounds& bounds) {
  while (!bytes.empty()) {
    bounds.await(pipe.get(), POLLOUT);
    const ssize_t count = ::write(pipe.get(), bytes.data(), bytes.size());
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (count < 0 && errno == EPIPE) return false;
    if (count < 0) throw system_error("cannot pass the image on", errno);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

Process start(const std::vector<std::string>& argv, const ArchivePipe& pipe, int in, int out, const Words& words) {
  SpawnOptions options;
  options.argv = argv;
  options.environment = pipe.environment;
  options.stdin_fd = in;
  options.stdout_fd = out;
  options.stderr_fd = words.fd();
  options.own_process_group = true;
  options.parent_death_signal = SIGKILL;
  options.folder = "/";
  return Process::spawn(options);
}

/// What it has said if it has failed.
std::string end_of(Process& process, const Words& words, const Bounds& bounds) {
  bounds.await(process.pidfd(), POLLIN);
  const auto status = process.exit_status();
  process.reap();
  if (status && status->success()) return "";
  const std::string said = words.text();
  return said.empty() ? "it has failed without a word" : said;
}

}  // namespace

std::string pass_archive(const ArchivePipe& pipe, TarOwners& owners, Deadline deadline,
                         const Interruption& interruption) {
  const Bounds bounds{deadline, interruption};
  Pipe from = make_pipe();
  Pipe to = make_pipe();
  ::fcntl(to.write.get(), F_SETFL, O_NONBLOCK);
  const Words words_of_source;
  const Words words_of_sink;
  Process source = start(pipe.from, pipe, -1, from.write.get(), words_of_source);
  Process sink = start(pipe.to, pipe, to.read.get(), words_of_sink.fd(), words_of_sink);
  from.write.reset();
  to.read.reset();
  std::string part(kPart, '\0');
  for (bool passing = true; passing;) {
    bounds.await(from.read.get(), POLLIN);
    const ssize_t count = ::read(from.read.get(), part.data(), part.size());
    if (count < 0 && errno != EINTR) throw system_error("cannot read the image", errno);
    if (count < 0) continue;
    passing = count > 0 && write_to(to.write, owners.take({part.data(), static_cast<std::size_t>(count)}), bounds);
  }
  from.read.reset();
  // A part of an archive may look whole to its reader.
  if (!owners.is_whole()) sink.signal(SIGKILL);
  to.write.reset();
  const std::string source_failed = end_of(source, words_of_source, bounds);
  const std::string sink_failed = end_of(sink, words_of_sink, bounds);
  if (!owners.is_whole() && !source_failed.empty()) return source_failed;
  return sink_failed;
}

}  // namespace gyre::jobs::containers::internal
