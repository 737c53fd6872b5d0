#include "gyre/jobs/node/internal/attempt_child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/base/pipe.h"
#include "gyre/cli/table.h"
#include "gyre/jobs/node/container_holder.h"
#include "gyre/jobs/node/internal/attempt_program.h"
#include "gyre/jobs/node/internal/cleanliness.h"
#include "gyre/jobs/node/internal/stopped_process.h"
#include "gyre/jobs/node/job_environment.h"

namespace gyre::jobs::node::internal {

namespace {

constexpr std::chrono::seconds kLongestDeath{10};

}  // namespace

AttemptChild::Ends AttemptChild::make_channel() {
  std::array<int, 2> ends;
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw system_error("cannot make a channel to the attempt's process", errno);
  }
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

AttemptChild::Ends AttemptChild::make_pipe() {
  Pipe pipe = gyre::make_pipe();
  ::fcntl(pipe.read.get(), F_SETFL, O_NONBLOCK);
  return {std::move(pipe.read), std::move(pipe.write)};
}

std::unique_ptr<Process> AttemptChild::start(const AttemptTask& task, const std::optional<UserId>& account,
                                             const Ends& channel, const Ends& words, const UniqueFd& code,
                                             const std::optional<ContainerDoor>& inside,
                                             const std::vector<std::string>& cgroups) {
  SpawnOptions options;
  options.cgroups = cgroups;
  if (inside) {
    options.argv = {inside->program, "enter", "--socket", inside->socket.string()};
    if (code) options.argv.insert(options.argv.end(), {"--code-fd", std::to_string(code.get())});
  } else {
    options.argv = {attempt_program(task.gyre_program), "attempt"};
  }
  options.argv.insert(options.argv.end(), {"--agent-fd", std::to_string(channel.its.get())});
  Variables variables = task.base;
  variables[kAttemptVariable] = task.state.order.attempt;
  variables[kNodeVariable] = task.state.order.here().id;
  options.environment = as_entries(variables);
  options.inherited_fds = {channel.its.get()};
  if (code) options.inherited_fds.push_back(code.get());
  // Not ours: a job could write there, or cut off what has been written.
  options.stdout_fd = options.stderr_fd = words.its.get();
  options.parent_death_signal = SIGKILL;
  options.folder = "/";
  options.user = account;
  return std::make_unique<Process>(Process::spawn(options));
}

AttemptChild::AttemptChild(AttemptTask task, const std::optional<UserId>& account, const UniqueFd& code,
                           const std::optional<ContainerDoor>& inside, const std::vector<std::string>& cgroups)
    : AttemptChild(std::move(task), account, code, inside, cgroups, make_channel(), make_pipe()) {}

AttemptChild::AttemptChild(AttemptTask task, const std::optional<UserId>& account, const UniqueFd& code,
                           const std::optional<ContainerDoor>& inside, const std::vector<std::string>& cgroups,
                           Ends channel, Ends words)
    : process_(start(task, account, channel, words, code, inside, cgroups)),
      lines_(std::move(channel.ours), kLongestProgressLine, "the process of the attempt"),
      words_(std::move(words.ours)) {
  task.code_descriptor = inside && code ? kCodeInContainer : code.get();
  lines_.post({{attempt_line::kTask, to_json(task)}});
}

AttemptChild::~AttemptChild() {
  if (process_) end(Deadline::after(std::chrono::milliseconds(0)));
}

bool AttemptChild::has_ended() const {
  pollfd ended{.fd = process_->pidfd(), .events = POLLIN, .revents = 0};
  return ::poll(&ended, 1, 0) > 0;
}

std::optional<ExitStatus> AttemptChild::wait(Deadline deadline) const {
  for (;;) {
    if (const auto status = process_->exit_status()) return status;
    if (deadline.passed()) return std::nullopt;
    pollfd ended{.fd = process_->pidfd(), .events = POLLIN, .revents = 0};
    if (::poll(&ended, 1, deadline.poll_timeout_ms()) <= 0 || process_->exit_status()) continue;
    // Dead, but shown to its tracer first.
    kill_tracer(process_->pid());
    ::poll(nullptr, 0, 1);
  }
}

std::string AttemptChild::end(Deadline deadline) {
  auto status = wait(deadline);
  if (!status) {
    process_->signal(SIGKILL);
    status = wait(Deadline::after(kLongestDeath));
  }
  if (!status) {
    static_cast<void>(
        process_.release());  // It stays a zombie as long as the node program lives, rather than hold it up.
    return "it cannot be ended";
  }
  process_->reap();
  process_.reset();
  if (status->success()) return "";
  std::array<char, 1024> text;
  const ssize_t count = ::read(words_.get(), text.data(), text.size());
  std::string how = status->signal != 0 ? signal_name(status->signal) : fmt::format("exit code {}", status->code);
  if (count <= 0) return how;
  return fmt::format("{}: {}", how, cli::printable({text.data(), static_cast<std::size_t>(count)}));
}

}  // namespace gyre::jobs::node::internal
