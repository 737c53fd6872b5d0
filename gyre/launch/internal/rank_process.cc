#include "gyre/launch/internal/rank_process.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/pipe.h"

namespace gyre::launch {

/// A pipe, before and while its rank is started; empty where the rank writes elsewhere.
struct RankProcess::Ends {
  UniqueFd read;
  UniqueFd write;

  static Ends make(int descriptor) {
    Ends ends;
    if (descriptor >= 0) return ends;
    Pipe pipe = make_pipe("a pipe for a rank's output");
    ends.read = std::move(pipe.read);
    ends.write = std::move(pipe.write);
    // Our end only: a rank must find an ordinary, blocking stdout.
    ::fcntl(ends.read.get(), F_SETFL, O_NONBLOCK);
    return ends;
  }

  SpawnOptions& use_in(SpawnOptions& spawn, int SpawnOptions::* descriptor) const {
    if (write) spawn.*descriptor = write.get();
    return spawn;
  }
};

RankProcess::RankProcess(int rank, SpawnOptions spawn)
    : RankProcess(rank, spawn, {Ends::make(spawn.stdout_fd), Ends::make(spawn.stderr_fd)}) {}

RankProcess::RankProcess(int rank, SpawnOptions& spawn, std::array<Ends, kStreams> ends)
    : rank_(rank),
      pipes_{std::move(ends[0].read), std::move(ends[1].read)},
      process_(
          Process::spawn(ends[1].use_in(ends[0].use_in(spawn, &SpawnOptions::stdout_fd), &SpawnOptions::stderr_fd))) {}

bool RankProcess::read_output(Stream stream, RankEvents& events) {
  UniqueFd& pipe = pipes_[static_cast<std::size_t>(stream)];
  if (!pipe) return false;
  constexpr std::size_t kBufferBytes = std::size_t{64} << 10;
  std::vector<char> buffer(kBufferBytes);
  const ssize_t count = ::read(pipe.get(), buffer.data(), buffer.size());
  if (count < 0) return false;
  if (count == 0) pipe.reset();
  events.output(rank_, stream, std::string_view(buffer.data(), static_cast<std::size_t>(count)));
  return true;
}

void RankProcess::finish_output(RankEvents& events) {
  for (const Stream stream : {Stream::kStdout, Stream::kStderr}) {
    UniqueFd& pipe = pipes_[static_cast<std::size_t>(stream)];
    if (!pipe) continue;
    pipe.reset();
    events.output(rank_, stream, {});
  }
}

}  // namespace gyre::launch
