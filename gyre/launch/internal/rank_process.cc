#include "gyre/launch/internal/rank_process.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"

namespace gyre::launch {

/// Both pipes of a rank, before and while it is started.
struct RankProcess::Ends {
  UniqueFd stdout_read;
  UniqueFd stdout_write;
  UniqueFd stderr_read;
  UniqueFd stderr_write;

  static Ends make() {
    int out[2];
    int err[2];
    Ends ends;
    if (::pipe2(out, O_CLOEXEC) != 0) throw system_error("cannot make a rank's output pipe", errno);
    ends.stdout_read = UniqueFd(out[0]);
    ends.stdout_write = UniqueFd(out[1]);
    if (::pipe2(err, O_CLOEXEC) != 0) throw system_error("cannot make a rank's output pipe", errno);
    ends.stderr_read = UniqueFd(err[0]);
    ends.stderr_write = UniqueFd(err[1]);
    // Our ends only: a rank must find an ordinary, blocking stdout.
    ::fcntl(ends.stdout_read.get(), F_SETFL, O_NONBLOCK);
    ::fcntl(ends.stderr_read.get(), F_SETFL, O_NONBLOCK);
    return ends;
  }
};

namespace {

SpawnOptions& with_output(SpawnOptions& spawn, int stdout_fd, int stderr_fd) {
  spawn.stdout_fd = stdout_fd;
  spawn.stderr_fd = stderr_fd;
  return spawn;
}

}  // namespace

RankProcess::RankProcess(int rank, SpawnOptions spawn, UniqueFd log, int shown)
    : RankProcess(rank, spawn, std::move(log), shown, Ends::make()) {}

RankProcess::RankProcess(int rank, SpawnOptions& spawn, UniqueFd log, int shown, Ends ends)
    : rank_(rank),
      process_(Process::spawn(with_output(spawn, ends.stdout_write.get(), ends.stderr_write.get()))),
      log_(std::move(log)),
      shown_(shown) {
  pipe(Stream::kStdout).fd = std::move(ends.stdout_read);
  pipe(Stream::kStderr).fd = std::move(ends.stderr_read);
}

LineSplitter::Sink RankProcess::sink_for(Stream stream, Output& output) {
  return [this, stream, &output](std::string_view text, LineEnd end) {
    if (is_shown(stream)) output.rank_text(rank_, stream, text, end);
    if (end != LineEnd::kCarriageReturn) tail_.add(text);
    if (!log_) return;
    log_pending_ += text;
    if (end == LineEnd::kNewline) log_pending_ += '\n';
    if (end == LineEnd::kCarriageReturn) log_pending_ += '\r';
  };
}

bool RankProcess::read_output(Stream stream, Output& output) {
  Pipe& source = pipe(stream);
  if (!source.fd) return false;
  constexpr std::size_t kBufferBytes = std::size_t{64} << 10;
  std::vector<char> buffer(kBufferBytes);
  const ssize_t count = ::read(source.fd.get(), buffer.data(), buffer.size());
  if (count < 0) return false;
  const auto sink = sink_for(stream, output);
  if (count == 0) {
    source.lines.finish(sink);
    source.fd.reset();
  } else {
    source.lines.add(std::string_view(buffer.data(), static_cast<std::size_t>(count)), sink);
    if (rank_ == 0 && is_shown(stream)) output.progress(stream, source.lines.progress());
  }
  write_log(std::exchange(log_pending_, {}));
  return true;
}

void RankProcess::finish_output(Output& output) {
  for (const Stream stream : {Stream::kStdout, Stream::kStderr}) {
    pipe(stream).lines.finish(sink_for(stream, output));
    pipe(stream).fd.reset();
  }
  write_log(std::exchange(log_pending_, {}));
}

void RankProcess::write_log(std::string_view text) {
  if (!log_ || text.empty()) return;
  try {
    write_all(log_.get(), as_bytes(text), "cannot write");
  } catch (const Error& error) {
    // A full disk must not end a training that needs none of these lines; the supervisor reports it, once.
    log_failure_ = error.what();
    log_.reset();
  }
}

}  // namespace gyre::launch
