#include "gyre/jobs/node/internal/job_commands.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/launch_contract.h"
#include "gyre/jobs/node/job_environment.h"
#include "gyre/jobs/orders/byte_stream.h"
#include "gyre/net/message.h"

namespace gyre::jobs::node::internal {

namespace {

/// Longer than a command gets to end (command_session.cc).
constexpr std::chrono::seconds kLongestEndOfAll{5};

void close_with(const UniqueFd& channel, std::string_view why) {
  const Bytes message = net::encode_message(orders::stream_message::kClosed, orders::encode_stream(0, as_bytes(why)));
  [[maybe_unused]] const ssize_t ignored =
      ::send(channel.get(), message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

JobCommands::~JobCommands() { end(); }

void JobCommands::allow(CommandPlace place) {
  // What a user's own `gyre run` meets there is nothing of the job's.
  for (Variables& variables : place.environments) {
    for (const char* file :
         {launch_contract::kStartFailureFile, launch_contract::kMissingOutputFile, launch_contract::kFailedRankFile}) {
      variables.erase(file);
    }
  }
  const MutexLock lock(mutex_);
  place_ = std::move(place);
}

std::string JobCommands::why_not() const {
  if (ended_) return "the job has ended";
  if (!place_) return "the job's processes have not started yet on this node; try again";
  return "";
}

void JobCommands::start(int rank, UniqueFd channel) {
  const MutexLock lock(mutex_);
  processes_.remove_if([](Process& process) {
    if (!process.exit_status()) return false;
    process.reap();
    return true;
  });
  std::string why = why_not();
  try {
    if (why.empty()) spawn(rank, channel);
  } catch (const Error& error) {
    why = error.what();
  }
  if (!why.empty()) close_with(channel, why);
}

void JobCommands::spawn(int rank, const UniqueFd& channel) {
  const auto count = static_cast<int>(place_->environments.size());
  const int index = rank < 0 ? 0 : std::clamp(rank - place_->first_rank, 0, count - 1);
  const UniqueFd null_fd(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null_fd) throw system_error("cannot open /dev/null", errno);
  SpawnOptions options;
  options.argv = {program_, "agent-command", "--fd", std::to_string(channel.get())};
  options.environment = as_entries(place_->environments[static_cast<std::size_t>(index)]);
  options.environment.push_back(place_->mark);
  options.inherited_fds = {channel.get()};
  options.stdout_fd = options.stderr_fd = null_fd.get();
  options.parent_death_signal = SIGKILL;
  options.folder = place_->folder;
  processes_.push_back(Process::spawn(options));
}

void JobCommands::end() {
  std::list<Process> ending;
  {
    const MutexLock lock(mutex_);
    ended_ = true;
    ending.swap(processes_);
  }
  for (const Process& process : ending) process.signal(SIGTERM);
  const Deadline deadline = Deadline::after(kLongestEndOfAll);
  for (Process& process : ending) {
    if (!process.wait(deadline)) process.signal(SIGKILL);
    process.wait(Deadline::never());
    process.reap();
  }
}

}  // namespace gyre::jobs::node::internal
