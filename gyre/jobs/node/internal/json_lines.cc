#include "gyre/jobs/node/internal/json_lines.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "gyre/base/check.h"
#include "gyre/base/error.h"
#include "gyre/jobs/orders/json_fields.h"

namespace gyre::jobs::node::internal {

using orders::parse_json;

namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostDescriptors = 4;

/// `descriptor`: one that goes along; negative: none.
ssize_t send_some(int socket, std::string_view bytes, int descriptor) {
  if (descriptor < 0) return ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  iovec content{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &content;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/// Output of programs and names of files need not be UTF-8.
std::string line_of(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

}  // namespace

JsonLines::JsonLines(UniqueFd socket, std::size_t longest, std::string peer)
    : socket_(std::move(socket)), longest_(longest), peer_(std::move(peer)) {}

void JsonLines::send(const Json& value) {
  const std::string line = line_of(value);
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t count = ::send(socket_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw Error(ErrorCode::kPeerLost, fmt::format("{} has gone", peer_));
    rest.remove_prefix(static_cast<std::size_t>(count));
  }
}

void JsonLines::post(const Json& value) {
  output_ += line_of(value);
  if (output_.size() > kMostUnread) {
    throw Error(ErrorCode::kResourceExhausted, fmt::format("{} does not read what it is sent", peer_));
  }
  flush();
}

void JsonLines::post(const Json& value, UniqueFd descriptor) {
  outgoing_.push_back({output_.size(), std::move(descriptor)});
  post(value);
}

UniqueFd JsonLines::descriptor() {
  if (descriptors_.empty()) return {};
  UniqueFd first = std::move(descriptors_.front());
  descriptors_.pop_front();
  return first;
}

void JsonLines::flush() {
  while (!output_.empty()) {
    // A descriptor goes with the first byte of its line.
    const bool carries = !outgoing_.empty() && outgoing_.front().at == 0;
    const std::size_t next = carries ? 1 : 0;
    const std::size_t length = outgoing_.size() > next ? outgoing_[next].at : output_.size();
    const int descriptor = carries ? outgoing_.front().descriptor.get() : -1;
    const ssize_t count = send_some(socket_.get(), std::string_view(output_).substr(0, length), descriptor);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) throw Error(ErrorCode::kPeerLost, fmt::format("{} has gone", peer_));
    output_.erase(0, static_cast<std::size_t>(count));
    if (carries) outgoing_.pop_front();
    for (Outgoing& each : outgoing_) each.at -= static_cast<std::size_t>(count);
  }
}

ssize_t JsonLines::receive_some(std::span<char> bytes) {
  if (!takes_descriptors_) return ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  iovec content{.iov_base = bytes.data(), .iov_len = bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMostDescriptors)> control{};
  msghdr message{};
  message.msg_iov = &content;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t count = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (count < 0) return count;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    std::array<int, kMostDescriptors> numbers;
    const std::size_t length = header->cmsg_len - CMSG_LEN(0);
    std::memcpy(numbers.data(), CMSG_DATA(header), length);
    for (std::size_t i = 0; i < length / sizeof(int); ++i) descriptors_.emplace_back(numbers[i]);
  }
  return count;
}

std::optional<Json> JsonLines::next_line() {
  const std::size_t end = input_.find('\n', searched_);
  searched_ = end == std::string::npos ? input_.size() : 0;
  if (end == std::string::npos) return std::nullopt;
  Json line = parse_json(std::string_view(input_).substr(0, end), longest_, "a line from " + peer_);
  input_.erase(0, end + 1);
  return line;
}

void JsonLines::receive() {
  std::array<char, std::size_t{64} << 10> bytes;
  const ssize_t count = receive_some(bytes);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) throw Error(ErrorCode::kPeerLost, fmt::format("{} was killed", peer_));
  input_.append(bytes.data(), static_cast<std::size_t>(count));
  if (input_.size() > longest_ + bytes.size() && input_.find('\n', searched_) == std::string::npos) {
    throw Error(ErrorCode::kProtocol, fmt::format("a line from {} is longer than {} bytes", peer_, longest_));
  }
}

std::optional<Json> JsonLines::next(Deadline deadline, std::initializer_list<int> wake_fds) {
  GYRE_CHECK(wake_fds.size() <= kMostWakers);
  for (;;) {
    if (auto line = next_line()) return line;
    std::array<pollfd, 1 + kMostWakers> waits;
    waits.fill({.fd = -1, .events = POLLIN, .revents = 0});
    waits[0] = {
        .fd = socket_.get(), .events = static_cast<short>(POLLIN | (output_.empty() ? 0 : POLLOUT)), .revents = 0};
    std::ranges::transform(wake_fds, waits.begin() + 1, [](int fd) { return pollfd{fd, POLLIN, 0}; });
    const int ready = ::poll(waits.data(), waits.size(), deadline.poll_timeout_ms());
    if (ready < 0 && errno != EINTR) throw system_error("poll", errno);
    const short events = ready > 0 ? waits[0].revents : short{0};
    if ((events & POLLOUT) != 0) flush();
    if ((events & ~POLLOUT) != 0) {
      receive();
      continue;
    }
    const bool woken =
        ready > 0 && std::any_of(waits.begin() + 1, waits.end(), [](const pollfd& wait) { return wait.revents != 0; });
    if (woken || ready == 0) return std::nullopt;
  }
}

}  // namespace gyre::jobs::node::internal
