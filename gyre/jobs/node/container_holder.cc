#include "gyre/jobs/node/container_holder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/process.h"

namespace gyre::jobs::node {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::size_t kMostDescriptors = 3;
constexpr std::size_t kLongestRequest = 4096;
constexpr std::chrono::seconds kLongestConnect{10};
constexpr int kPauseMs = 5;

UniqueFd unix_socket() {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) throw system_error("cannot make a socket", errno);
  return socket;
}

sockaddr_un address_of(const fs::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.native().size() >= sizeof address.sun_path) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} is longer than a socket's path may be", path.string()));
  }
  std::memcpy(address.sun_path, path.c_str(), path.native().size());
  return address;
}

/// One message with descriptors.
void send_request(int socket, const std::string& text, std::span<const int> descriptors) {
  iovec bytes{.iov_base = const_cast<char*>(text.data()), .iov_len = text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMostDescriptors)> control{};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  if (::sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(text.size())) return;
  throw system_error("cannot reach the job's container", errno);
}

struct Request {
  Json content;
  std::vector<UniqueFd> descriptors;
};

/// Nothing if the peer has gone or sent something else.
std::optional<Request> receive_request(int socket) {
  std::array<char, kLongestRequest> text;
  iovec bytes{.iov_base = text.data(), .iov_len = text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMostDescriptors)> control{};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t count = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (count <= 0) return std::nullopt;
  Request request;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_type != SCM_RIGHTS) continue;
    std::array<int, kMostDescriptors> numbers;
    const std::size_t length = header->cmsg_len - CMSG_LEN(0);
    std::memcpy(numbers.data(), CMSG_DATA(header), length);
    for (std::size_t i = 0; i < length / sizeof(int); ++i) request.descriptors.emplace_back(numbers[i]);
  }
  request.content = Json::parse(std::string(text.data(), static_cast<std::size_t>(count)), nullptr, false);
  return request.content.is_array() && request.descriptors.size() >= 2 ? std::optional(std::move(request))
                                                                       : std::nullopt;
}

class Holder {
 public:
  Holder(const fs::path& socket, std::string program, std::vector<std::string> environment)
      : program_(std::move(program)), environment_(std::move(environment)), listener_(unix_socket()) {
    sigset_t ended;
    ::sigemptyset(&ended);
    ::sigaddset(&ended, SIGCHLD);
    ::sigprocmask(SIG_BLOCK, &ended, nullptr);
    signals_ = UniqueFd(::signalfd(-1, &ended, SFD_CLOEXEC | SFD_NONBLOCK));
    std::error_code ignored;
    fs::remove(socket, ignored);
    const sockaddr_un address = address_of(socket);
    if (!signals_ || ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(listener_.get(), 4) != 0) {
      throw system_error(fmt::format("cannot listen at {}", socket.string()), errno);
    }
  }

  [[noreturn]] void run() {
    for (;;) {
      std::array<pollfd, 3> waits = {
          {{listener_.get(), POLLIN, 0}, {signals_.get(), POLLIN, 0}, {connection_.get(), POLLIN, 0}}};
      if (::poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR) throw system_error("poll", errno);
      if (waits[1].revents != 0) reap();
      if (connection_ && waits[2].revents != 0) leave();
      if (waits[0].revents != 0) accept();
    }
  }

 private:
  void accept() {
    UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection) return;
    leave();
    auto request = receive_request(connection.get());
    if (!request) return;
    connection_ = std::move(connection);
    try {
      start(*request);
    } catch (const std::exception& error) {
      const std::string sentence = fmt::format("{}\n", error.what());
      [[maybe_unused]] const ssize_t ignored =
          ::write(request->descriptors.front().get(), sentence.data(), sentence.size());
      connection_.reset();
    }
  }

  void start(const Request& request) {
    SpawnOptions options;
    options.argv = {program_, "attempt", "--agent-fd", std::to_string(kChannelInContainer)};
    options.environment = environment_;
    for (const Json& mark : request.content) options.environment.push_back(mark.get<std::string>());
    options.stdout_fd = options.stderr_fd = request.descriptors.front().get();
    options.folder = "/";
    std::vector<UniqueFd> renumbered;
    for (std::size_t i = 1; i < request.descriptors.size(); ++i) {
      // The holder's own descriptors, and those that it receives, have lower numbers.
      const int number = i == 1 ? kChannelInContainer : kCodeInContainer;
      if (::dup3(request.descriptors[i].get(), number, O_CLOEXEC) < 0) {
        throw system_error("cannot pass a descriptor on", errno);
      }
      renumbered.emplace_back(number);
      options.inherited_fds.push_back(number);
    }
    process_.emplace(Process::spawn(options));
  }

  /// Whoever asked for the process has gone, or somebody else asks: what it has started itself goes on.
  void leave() {
    connection_.reset();
    if (!process_) return;
    process_->signal(SIGKILL);
    process_->wait(Deadline::never());
    process_->reap();
    process_.reset();
  }

  void reap() {
    signalfd_siginfo ignored;
    while (::read(signals_.get(), &ignored, sizeof ignored) > 0) continue;
    if (process_) {
      if (const auto status = process_->exit_status()) {
        const std::string line = Json{{"code", status->shell_code()}}.dump();
        ::send(connection_.get(), line.data(), line.size(), MSG_NOSIGNAL);
        process_->reap();
        process_.reset();
        connection_.reset();
      }
    }
    for (;;) {
      siginfo_t info{};
      if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
      if (process_ && info.si_pid == process_->pid()) return;  // The next signal is its own.
      ::waitpid(info.si_pid, nullptr, WNOHANG);
    }
  }

  const std::string program_;
  const std::vector<std::string> environment_;
  UniqueFd listener_;
  UniqueFd signals_;
  UniqueFd connection_;             ///< To whoever has asked for the process.
  std::optional<Process> process_;  ///< Of the attempt.
};

UniqueFd connect_to_holder(const fs::path& path) {
  UniqueFd socket = unix_socket();
  const sockaddr_un address = address_of(path);
  const Deadline deadline = Deadline::after(kLongestConnect);
  while (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    // Its container has only just begun.
    if ((errno != ENOENT && errno != ECONNREFUSED) || deadline.passed()) {
      throw system_error("the job's container does not answer", errno);
    }
    ::poll(nullptr, 0, kPauseMs);
  }
  return socket;
}

}  // namespace

void hold_container(const fs::path& socket, const std::string& program, const std::vector<std::string>& environment) {
  Holder(socket, program, environment).run();
}

int enter_container(const ContainerEntry& entry, const std::vector<std::string>& environment) {
  const UniqueFd socket = connect_to_holder(entry.socket);
  std::vector<int> descriptors = {STDOUT_FILENO, entry.channel};
  if (entry.code >= 0) descriptors.push_back(entry.code);
  send_request(socket.get(), Json(environment).dump(), descriptors);
  ::close(entry.channel);  // Only the process inside is to hold it open.
  std::array<char, kLongestRequest> text;
  const ssize_t count = ::recv(socket.get(), text.data(), text.size(), 0);
  const Json answer =
      count > 0 ? Json::parse(std::string(text.data(), static_cast<std::size_t>(count)), nullptr, false) : Json();
  if (answer.is_object() && answer.value("code", Json()).is_number_integer()) return answer["code"].get<int>();
  throw Error(ErrorCode::kPeerLost, "the job's container has ended");
}

}  // namespace gyre::jobs::node
