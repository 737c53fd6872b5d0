#include "gyre/launch/internal/hosts/remote_agent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/base/pipe.h"

namespace gyre::launch {

namespace {

constexpr std::string_view kFirstWords = "gyre-agent ";
constexpr std::array<Stream, kStreams> kBothStreams = {Stream::kStdout, Stream::kStderr};

/// Ours does not wait, the agent's does.
Pipe make_agent_pipe(bool we_read) {
  Pipe pipe = make_pipe("a pipe to an agent");
  ::fcntl((we_read ? pipe.read : pipe.write).get(), F_SETFL, O_NONBLOCK);
  return pipe;
}

/// Of "gyre-agent 4711 4712".
std::optional<RemoteAgent::Ports> parse_ports(std::string_view line) {
  if (!line.starts_with(kFirstWords)) return std::nullopt;
  const char* const end = line.data() + line.size();
  RemoteAgent::Ports ports;
  const auto first = std::from_chars(line.data() + kFirstWords.size(), end, ports.store);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != ' ') return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, ports.rendezvous);
  return second.ec == std::errc() && second.ptr == end ? std::optional(ports) : std::nullopt;
}

std::string_view stripped(std::string_view line) {
  constexpr std::string_view kSpaces = " \t\r";
  line.remove_prefix(std::min(line.find_first_not_of(kSpaces), line.size()));
  return line.substr(0, line.find_last_not_of(kSpaces) + 1);
}

}  // namespace

void RemoteAgent::start(const std::vector<std::string>& command, const std::vector<std::string>& environment) {
  auto [stdin_theirs, stdin_ours] = make_agent_pipe(false);
  auto [stdout_ours, stdout_theirs] = make_agent_pipe(true);
  auto [stderr_ours, stderr_theirs] = make_agent_pipe(true);
  SpawnOptions options;
  options.argv = command;
  options.environment = environment;
  options.stdin_fd = stdin_theirs.get();
  options.stdout_fd = stdout_theirs.get();
  options.stderr_fd = stderr_theirs.get();
  options.own_process_group = true;  // A Ctrl-C is for us, not for ssh.
  program_ = command.front();
  try {
    process_.emplace(Process::spawn(options));
  } catch (const SpawnError& error) {
    failure_ = error.what();
    return;
  }
  stdin_ = std::move(stdin_ours);
  pipes_[0].fd = std::move(stdout_ours);
  pipes_[1].fd = std::move(stderr_ours);
}

void RemoteAgent::add_waits(std::vector<pollfd>& waits) const {
  if (!process_ || status_) return;
  waits.push_back({.fd = process_->pidfd(), .events = POLLIN, .revents = 0});
  for (const Pipe& pipe : pipes_) {
    if (pipe.fd) waits.push_back({.fd = pipe.fd.get(), .events = POLLIN, .revents = 0});
  }
  if (stdin_ && !pending_.empty()) waits.push_back({.fd = stdin_.get(), .events = POLLOUT, .revents = 0});
}

void RemoteAgent::advance(const Lines& lines) {
  if (!process_ || status_) return;
  write();
  // First: what it wrote before its end is read below.
  const auto ended = process_->exit_status();
  for (const Stream stream : kBothStreams) read(stream, lines);
  if (!ended) return;
  // ssh may leave a process behind that holds its stderr (ControlPersist): nothing more is waited for.
  for (const Stream stream : kBothStreams) {
    Pipe& pipe = pipes_[static_cast<std::size_t>(stream)];
    pipe.lines.finish([&](std::string_view line, LineEnd) { hear(stream, line, lines); });
    pipe.fd.reset();
  }
  stdin_.reset();
  process_->reap();
  status_ = ended;
  if (ports_ || !failure_.empty()) return;
  failure_ =
      last_words_.empty() ? fmt::format("{} ended with exit code {}", program_, ended->shell_code()) : last_words_;
}

void RemoteAgent::read(Stream stream, const Lines& lines) {
  Pipe& pipe = pipes_[static_cast<std::size_t>(stream)];
  std::vector<char> buffer(std::size_t{64} << 10);
  while (pipe.fd) {
    const ssize_t count = ::read(pipe.fd.get(), buffer.data(), buffer.size());
    if (count < 0) return;
    if (count == 0) pipe.fd.reset();
    pipe.lines.add({buffer.data(), static_cast<std::size_t>(count)}, [&](std::string_view line, LineEnd end) {
      if (end != LineEnd::kCarriageReturn) hear(stream, line, lines);
    });
  }
}

void RemoteAgent::hear(Stream stream, std::string_view line, const Lines& lines) {
  if (ports_) return lines(stream, line);
  if (stream == Stream::kStdout) {
    ports_ = parse_ports(line);  // A login script may say something first.
  } else if (const std::string_view words = stripped(line); !words.empty()) {
    last_words_ = words;
  }
}

void RemoteAgent::tell(std::string_view line) {
  if (!stdin_ || letting_go_) return;
  pending_ += line;
  pending_ += '\n';
  write();
}

void RemoteAgent::write() {
  while (stdin_ && !pending_.empty()) {
    const ssize_t count = ::write(stdin_.get(), pending_.data(), pending_.size());
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count < 0) return stdin_.reset();  // It has ended.
    pending_.erase(0, static_cast<std::size_t>(count));
  }
  if (letting_go_) stdin_.reset();
}

void RemoteAgent::let_go() {
  letting_go_ = true;
  write();
}

void RemoteAgent::kill() {
  if (process_ && !status_) process_->signal(SIGKILL);
}

}  // namespace gyre::launch
