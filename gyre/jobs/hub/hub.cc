#include "gyre/jobs/hub/hub.h"

#include <fmt/format.h>
#include <poll.h>
#include <spdlog/logger.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <functional>
#include <map>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/jobs/hub/internal/hub_state.h"
#include "gyre/jobs/orders/messages.h"
#include "gyre/jobs/orders/secure_connection.h"
#include "gyre/net/async/acceptor.h"
#include "gyre/net/async/event_loop.h"
#include "gyre/net/async/message_connection.h"
#include "gyre/net/notifier.h"
#include "gyre/net/socket.h"

namespace gyre::jobs::hub {

using orders::encode_lease;
using orders::encode_number;
using orders::NodeReport;
using orders::number_from;
using orders::Purpose;
using orders::Registration;
using orders::registration_from;
using orders::report_from;
using orders::StopReason;
using orders::WorkOrder;

namespace {

using Connection = std::shared_ptr<net::MessageConnection>;

constexpr std::chrono::milliseconds kLongestSilence{10'000};  // Until the registration.
constexpr int kLooksPerLease = 4;
constexpr std::size_t kMostNodesAtOnce = 256;  // After a restart of the service, all of them come.

UniqueFd listen_at(const net::Endpoint& endpoint) {
  // Whoever starts a service holds its lock: a socket that is there is one of a service that was killed.
  if (endpoint.kind == net::Endpoint::Kind::kUnix && !endpoint.host.starts_with('@')) ::unlink(endpoint.host.c_str());
  UniqueFd listener = net::listen_on(endpoint);
  if (endpoint.kind == net::Endpoint::Kind::kUnix && !endpoint.host.starts_with('@')) {
    ::chmod(endpoint.host.c_str(), S_IRUSR | S_IWUSR);
  }
  return listener;
}

}  // namespace

/// Everything but `events_` belongs to the loop's thread.
class Hub::Work {
 public:
  explicit Work(const HubOptions& options)
      : options_(options), state_(options, SteadyClock::now()), timer_(loop_.context()) {
    listener_ = listen_at(options.endpoint);
    endpoint_ =
        options.endpoint.kind == net::Endpoint::Kind::kTcp ? net::local_endpoint(listener_.get()) : options.endpoint;
    net::AcceptorOptions accepting;
    accepting.what = "the job service";
    accepting.key = options.key;
    accepting.expected = kMostNodesAtOnce;
    accepting.check = [](const net::Hello& hello) {
      if (hello.purpose != static_cast<std::uint32_t>(Purpose::kService)) {
        throw Error(ErrorCode::kProtocol, "the connection was made for something else");
      }
    };
    accepting.admitted = [this](const net::Hello&, std::shared_ptr<net::AsyncSocket> socket,
                                std::shared_ptr<net::TlsSession> tls) {
      auto connection = std::make_shared<net::MessageConnection>(std::move(socket), std::move(tls));
      asio::co_spawn(loop_.context(), serve(std::move(connection)), asio::detached);
    };
    accepting.logger = options.logger;
    acceptor_ = std::make_shared<net::Acceptor>(loop_.context(), std::move(accepting));
    in_loop([this] { asio::co_spawn(loop_.context(), look_at_clock(), asio::detached); });
  }

  ~Work() {
    loop_.stop();
    if (endpoint_.kind == net::Endpoint::Kind::kUnix && !endpoint_.host.starts_with('@')) {
      ::unlink(endpoint_.host.c_str());
    }
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  void admit() {
    in_loop([this] {
      if (listener_) acceptor_->listen(std::move(listener_));
    });
  }

  void change(std::function<void(internal::HubState&)> how) {
    in_loop([this, how = std::move(how)] {
      how(state_);
      after_change();
    });
  }

  void dismiss(const std::string& node) {
    in_loop([this, node] {
      const auto found = connections_.find(node);
      if (found != connections_.end()) found->second->send(orders::message_type::kLeave, {});
    });
  }

  std::vector<HubEvent> take_events(Deadline deadline) {
    pollfd wait{.fd = changed_.fd(), .events = POLLIN, .revents = 0};
    ::poll(&wait, 1, deadline.poll_timeout_ms());
    const MutexLock lock(mutex_);
    changed_.clear();
    return std::exchange(events_, {});
  }

  void wake() { changed_.notify(); }
  int fd() const { return changed_.fd(); }
  const net::Endpoint& endpoint() const { return endpoint_; }

 private:
  void in_loop(std::function<void()> what) { asio::post(loop_.context(), std::move(what)); }

  void after_change() {
    for (const internal::Outgoing& message : state_.take_outgoing()) {
      const auto found = connections_.find(message.node);
      if (found != connections_.end()) found->second->send(message.type, as_bytes(message.payload));
    }
    if (!state_.has_events()) return;
    const MutexLock lock(mutex_);
    std::ranges::move(state_.take_events(), std::back_inserter(events_));
    changed_.notify();
  }

  asio::awaitable<void> look_at_clock() {
    for (bool was_late = false;;) {
      timer_.expires_after(options_.lease / kLooksPerLease);
      boost::system::error_code failure;
      co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, failure));
      if (failure) co_return;
      // This process was stopped, or had no processor, for a while: renewals that came meanwhile have yet to be read.
      const bool late = SteadyClock::now() - timer_.expiry() > options_.lease / kLooksPerLease;
      if (late && !std::exchange(was_late, true)) continue;
      was_late = late;
      state_.look_at_clock(SteadyClock::now());
      after_change();
    }
  }

  asio::awaitable<void> serve(Connection connection) {
    std::string node;
    try {
      node = co_await register_node(connection);
      for (;;) handle(connection, node, co_await connection->receive());
    } catch (const std::exception& error) {
      options_.logger->info("the connection to {} ended: {}", node.empty() ? "an agent" : node, error.what());
    }
    connection->close();
    const auto found = connections_.find(node);
    if (found == connections_.end() || found->second != connection) co_return;  // A new one has taken its place.
    connections_.erase(found);
    state_.node_gone(node);
    after_change();
  }

  asio::awaitable<std::string> register_node(Connection connection) {
    const net::TimeLimit limit(connection->socket(), kLongestSilence);
    const net::Message first = co_await connection->receive();
    if (first.type != orders::message_type::kRegister) throw Error(ErrorCode::kProtocol, "an agent did not register");
    const Registration registration = registration_from(first);
    const auto before = connections_.find(registration.node);
    if (before != connections_.end()) before->second->close();
    connections_[registration.node] = connection;
    connection->send(orders::message_type::kWelcome, as_bytes(encode_lease(options_.lease)));
    state_.node_came(registration, SteadyClock::now());
    after_change();
    co_return registration.node;
  }

  void handle(const Connection& connection, const std::string& node, const net::Message& message) {
    if (message.type == orders::message_type::kRenew) {
      state_.renewed(node, SteadyClock::now());
      connection->send(orders::message_type::kRenewed, as_bytes(encode_number(number_from(message))));
    } else if (message.type == orders::message_type::kReport) {
      state_.report(node, report_from(message));
    } else {
      throw Error(ErrorCode::kProtocol, fmt::format("node {} sent a message of type {}", node, message.type));
    }
    after_change();
  }

  const HubOptions options_;
  net::Endpoint endpoint_;
  UniqueFd listener_;  // Until admit().
  net::EventLoop loop_;
  std::shared_ptr<net::Acceptor> acceptor_;
  internal::HubState state_;
  std::map<std::string, Connection> connections_;
  asio::steady_timer timer_;
  net::Notifier changed_;
  Mutex mutex_;
  std::vector<HubEvent> events_ GYRE_GUARDED_BY(mutex_);
};

Hub::Hub(const HubOptions& options) : work_(std::make_unique<Work>(options)) {}
Hub::~Hub() = default;

void Hub::admit() { work_->admit(); }

void Hub::submit(const WorkOrder& order) {
  work_->change([order](internal::HubState& state) { state.submit(order, SteadyClock::now()); });
}

void Hub::stop(const std::string& attempt, StopReason reason, std::chrono::seconds grace) {
  work_->change([=](internal::HubState& state) { state.stop(attempt, reason, grace); });
}

void Hub::acknowledge(const std::string& attempt) {
  work_->change([attempt](internal::HubState& state) { state.acknowledge(attempt); });
}

void Hub::report(const std::string& node, const NodeReport& report) {
  work_->change([=](internal::HubState& state) { state.report(node, report); });
}

void Hub::lose_node(const std::string& node, const std::string& why, NodeLoss loss) {
  work_->change([=](internal::HubState& state) { state.lose_node(node, why, loss); });
}

void Hub::dismiss(const std::string& node) { work_->dismiss(node); }
std::vector<HubEvent> Hub::take_events(Deadline deadline) { return work_->take_events(deadline); }
void Hub::wake() { work_->wake(); }
int Hub::fd() const { return work_->fd(); }
const net::Endpoint& Hub::endpoint() const { return work_->endpoint(); }

}  // namespace gyre::jobs::hub
