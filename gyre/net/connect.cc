#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>
#include <vector>

#include "gyre/base/fork.h"
#include "gyre/net/internal/address.h"
#include "gyre/net/socket.h"

namespace gyre::net {
namespace internal {
namespace {

/// Between the starts of two attempts (RFC 8305, section 5).
constexpr std::chrono::milliseconds kBetweenAttempts{250};
/// Longest poll, so that `meanwhile` is called.
constexpr int kPollSliceMs = 100;

/// Nobody listens yet, or the host is just starting: worth another try.
bool may_pass(int failure) {
  // EAGAIN: a unix socket's queue of waiting connections is full.
  return failure == ECONNREFUSED || failure == ENOENT || failure == EAGAIN || failure == ECONNRESET ||
         failure == EHOSTUNREACH || failure == ENETUNREACH || failure == ETIMEDOUT || failure == EADDRNOTAVAIL;
}

/// The attempts to reach one of several addresses.
class Race {
 public:
  Race(const std::vector<Address>& addresses, Deadline deadline) : addresses_(addresses), deadline_(deadline) {}

  Connected run(const std::function<void()>& meanwhile) {
    for (;;) {
      while (next_ < addresses_.size() && (attempts_.empty() || SteadyClock::now() >= next_start_)) {
        if (UniqueFd connected = start(addresses_[next_++])) return {std::move(connected), 0};
      }
      if (attempts_.empty()) return {UniqueFd(), failure_ == 0 ? EAGAIN : failure_};
      if (UniqueFd connected = wait()) return {std::move(connected), 0};
      if (deadline_.passed()) return {UniqueFd(), attempts_.empty() ? failure_ : ETIMEDOUT};
      meanwhile();
    }
  }

 private:
  struct Attempt {
    UniqueFd socket;
    int family;
  };

  /// The socket if it is connected at once.
  UniqueFd start(const Address& address) {
    UniqueFd socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const bool connected = socket && ::connect(socket.get(), address.get(), address.length) == 0;
    if (connected) return finish({std::move(socket), address.family()});
    if (socket && (errno == EINPROGRESS || errno == EINTR)) {
      attempts_.push_back({std::move(socket), address.family()});
      next_start_ = SteadyClock::now() + kBetweenAttempts;
    } else {
      note(errno);
    }
    return {};
  }

  /// The first socket that is connected now. After a failure the next attempt is due at once.
  UniqueFd wait() {
    std::vector<pollfd> polled;
    for (const Attempt& attempt : attempts_) polled.push_back({attempt.socket.get(), POLLOUT, 0});
    int longest_ms = kPollSliceMs;
    if (next_ < addresses_.size()) {
      longest_ms = std::min(
          longest_ms, Deadline::after(std::chrono::ceil<std::chrono::milliseconds>(next_start_ - SteadyClock::now()))
                          .poll_timeout_ms(kPollSliceMs));
    }
    if (::poll(polled.data(), polled.size(), deadline_.poll_timeout_ms(longest_ms)) < 0 && errno != EINTR) {
      throw system_error("poll", errno);
    }
    for (std::size_t i = polled.size(); i-- > 0;) {
      if (polled[i].revents == 0) continue;
      Attempt attempt = std::move(attempts_[i]);
      attempts_.erase(attempts_.begin() + static_cast<std::ptrdiff_t>(i));
      int failure = 0;
      socklen_t length = sizeof(failure);
      if (::getsockopt(attempt.socket.get(), SOL_SOCKET, SO_ERROR, &failure, &length) != 0) failure = errno;
      if (failure == 0) return finish(std::move(attempt));
      note(failure);
      next_start_ = SteadyClock::now();
    }
    return {};
  }

  void note(int failure) {
    if (failure_ == 0 || may_pass(failure)) failure_ = failure;
  }

  static UniqueFd finish(Attempt attempt) {
    close_in_forks(attempt.socket.get());
    set_up_connection(attempt.socket.get(), attempt.family);
    return std::move(attempt.socket);
  }

  const std::vector<Address>& addresses_;
  Deadline deadline_;
  std::size_t next_ = 0;
  SteadyClock::time_point next_start_ = SteadyClock::now();
  std::vector<Attempt> attempts_;
  int failure_ = 0;  // One that may pass counts more than one that will not, such as a missing protocol.
};

}  // namespace

Connected connect_to_any(const std::vector<Address>& addresses, Deadline deadline,
                         const std::function<void()>& meanwhile) {
  return Race(addresses, deadline).run(meanwhile);
}

}  // namespace internal

namespace {

constexpr int kFirstRetryPauseMs = 2;
constexpr int kLongestRetryPauseMs = 100;

void pause(int pause_ms, Deadline deadline) {
  ::poll(nullptr, 0, std::min(pause_ms, std::max(0, deadline.poll_timeout_ms(pause_ms))));
}

}  // namespace

UniqueFd connect_to(const Endpoint& endpoint, Deadline deadline, const std::function<void()>& meanwhile) {
  const std::string name = to_string(endpoint);
  int pause_ms = kFirstRetryPauseMs;
  for (;;) {
    const internal::Resolution resolution = internal::resolve(endpoint, deadline);
    // A name server may be slow to learn about a new host; a name that does not exist never will.
    if (resolution.addresses.empty() && resolution.failure != EAI_AGAIN) {
      throw internal::unknown_host(endpoint, resolution.failure);
    }
    internal::Connected connected = internal::connect_to_any(resolution.addresses, deadline, meanwhile);
    if (connected.socket) return std::move(connected.socket);
    if (!internal::may_pass(connected.failure))
      throw system_error(fmt::format("cannot connect to {}", name), connected.failure);
    if (deadline.passed()) {
      throw Error(
          ErrorCode::kTimeout,
          resolution.addresses.empty()
              ? internal::unknown_host(endpoint, resolution.failure).what()
              : system_error(fmt::format("no connection to {} in time; the last try met", name), connected.failure)
                    .what());
    }
    pause(pause_ms, deadline);
    pause_ms = std::min(2 * pause_ms, kLongestRetryPauseMs);
    meanwhile();
  }
}

}  // namespace gyre::net
