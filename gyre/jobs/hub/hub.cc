#include "gyre/jobs/hub/hub.h"

#include <fmt/format.h>
#include <poll.h>
#include <spdlog/logger.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/secret_key.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/jobs/hub/code_shelf.h"
#include "gyre/jobs/hub/internal/hub_state.h"
#include "gyre/jobs/hub/internal/stream_table.h"
#include "gyre/jobs/hub/internal/task_thread.h"
#include "gyre/jobs/orders/code_stream.h"
#include "gyre/jobs/orders/log_stream.h"
#include "gyre/jobs/orders/messages.h"
#include "gyre/jobs/orders/secure_connection.h"
#include "gyre/net/async/acceptor.h"
#include "gyre/net/async/event_loop.h"
#include "gyre/net/async/message_connection.h"
#include "gyre/net/notifier.h"
#include "gyre/net/socket.h"

namespace gyre::jobs::hub {

using orders::code_request_from;
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
/// Of logs on their way from one node, or of code on its way to one, where few are connected; and about as much from
/// and to all of them.
constexpr std::uint64_t kLargestLogWindow = std::uint64_t{1} << 20;
/// Larger, because a job waits for its code: a node asks for no more of it than comes in half a second.
constexpr std::uint64_t kLargestCodeWindow = std::uint64_t{16} << 20;
constexpr std::uint64_t kSmallestWindow = std::uint64_t{64} << 10;
/// What else a node may say of its logs meanwhile: which files it has, and where each piece belongs.
constexpr std::uint64_t kMostAround = std::uint64_t{2} << 20;
constexpr std::uint64_t kAllWindows = std::uint64_t{64} << 20;

UniqueFd listen_at(const net::Endpoint& endpoint) {
  // Whoever starts a service holds its lock: a socket that is there is one of a service that was killed.
  if (endpoint.kind == net::Endpoint::Kind::kUnix && !endpoint.host.starts_with('@')) ::unlink(endpoint.host.c_str());
  UniqueFd listener = net::listen_on(endpoint);
  if (endpoint.kind == net::Endpoint::Kind::kUnix && !endpoint.host.starts_with('@')) {
    ::chmod(endpoint.host.c_str(), S_IRUSR | S_IWUSR);
  }
  return listener;
}

/// One node program that is, or was, connected.
struct Contact {
  Connection connection;
  std::string node;
  std::uint64_t log_window = 0;
  std::uint64_t log_bytes = 0;  ///< That have come and are not written.
  std::uint64_t code_window = 0;
  std::uint64_t code_bytes = 0;  ///< That were asked for and are not read.
};

bool is_about_logs(std::uint16_t type) {
  return type >= orders::message_type::kLogOpen && type <= orders::message_type::kLogEnd;
}

/// The nodes of an attempt, and the key that is theirs alone.
struct AttemptNodes {
  net::JobKey key{};
  std::string attempt;
  std::set<std::string> names;
};

/// The way into the loop for streams, which may outlive it.
class Gate {
 public:
  explicit Gate(asio::io_context& loop) : loop_(&loop) {}
  void post(std::function<void()> what) {
    const MutexLock lock(mutex_);
    if (loop_ != nullptr) asio::post(*loop_, std::move(what));
  }
  void close() {
    const MutexLock lock(mutex_);
    loop_ = nullptr;
  }

 private:
  Mutex mutex_;
  asio::io_context* loop_ GYRE_GUARDED_BY(mutex_);
};

/// On the thread that writes logs.
std::pair<std::uint16_t, std::string> answer_to(LogStore& store, const std::string& node, const net::Message& message) {
  LogStore::Answer answer;
  switch (message.type) {
    case orders::message_type::kLogOpen: answer = store.open(node, orders::log_place_from(message)); break;
    case orders::message_type::kLogBytes: answer = store.write(node, orders::log_piece_from(message)); break;
    case orders::message_type::kLogCut: answer = store.cut(node, orders::log_place_from(message)); break;
    default: {
      const std::string attempt = orders::attempt_from(message);
      store.finish(node, attempt);
      return {orders::message_type::kLogDone, orders::encode_attempt(attempt)};
    }
  }
  return {answer.type, encode(answer.place)};
}

}  // namespace

/// Everything but `events_` belongs to the loop's thread.
class Hub::Work {
 public:
  explicit Work(const HubOptions& options)
      : options_(options),
        state_(options, SteadyClock::now()),
        timer_(loop_.context()),
        log_writer_("logs of jobs", options.logs),
        code_reader_("code of jobs") {
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
    accepting.key_of = [this](const net::Hello& hello) -> std::optional<net::JobKey> {
      const auto found = keys_.find(hello.channel);
      return found == keys_.end() ? std::nullopt : std::optional(found->second.key);
    };
    accepting.admitted = [this](const net::Hello& hello, std::shared_ptr<net::AsyncSocket> socket,
                                std::shared_ptr<net::TlsSession> tls) {
      auto connection = std::make_shared<net::MessageConnection>(std::move(socket), std::move(tls));
      asio::co_spawn(loop_.context(), serve(std::move(connection), names_for(hello.channel)), asio::detached);
    };
    accepting.logger = options.logger;
    acceptor_ = std::make_shared<net::Acceptor>(loop_.context(), std::move(accepting));
    in_loop([this] { asio::co_spawn(loop_.context(), look_at_clock(), asio::detached); });
  }

  ~Work() {
    gate_->close();
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

  void submit(const WorkOrder& order) {
    log_writer_.post([order](LogStore& store) { store.expect(order); });
    code_reader_.post([order](CodeShelf& shelf) { shelf.expect(order); });
    AttemptNodes nodes{.key = key_of_nodes(options_.key, order.attempt), .attempt = order.attempt, .names = {}};
    std::vector<std::string> in_order;
    for (const orders::NodePlace& node : order.nodes) in_order.push_back(node.registered_name());
    nodes.names.insert(in_order.begin(), in_order.end());
    in_loop([this, nodes = std::move(nodes), in_order = std::move(in_order)] {
      keys_[orders::key_number(nodes.key)] = nodes;
      nodes_of_attempts_[nodes.attempt] = in_order;
    });
    change([order](internal::HubState& state) { state.submit(order, SteadyClock::now()); });
  }

  void acknowledge(const std::string& attempt) {
    change([attempt](internal::HubState& state) { state.acknowledge(attempt); });
    // Those that are connected are still to hear of it.
    in_loop([this, attempt] {
      std::erase_if(keys_, [&](const auto& key) { return key.second.attempt == attempt; });
      nodes_of_attempts_.erase(attempt);
    });
    log_writer_.post([attempt](LogStore& store) { store.release(attempt); });
    code_reader_.post([attempt](CodeShelf& shelf) { shelf.release(attempt); });
  }

  std::shared_ptr<NodeStream> open_stream(const orders::StreamRequest& request, std::size_t node) {
    const std::uint32_t number = ++last_stream_;
    auto stream = std::make_shared<NodeStream>([this, gate = gate_, number](std::uint16_t type, Bytes bytes) {
      gate->post([this, number, type, bytes = std::move(bytes)] { streams_.send(number, type, bytes); });
    });
    in_loop([this, number, request, node, weak = std::weak_ptr(stream)] {
      const auto opened = weak.lock();
      if (!opened) return;
      const auto nodes = nodes_of_attempts_.find(request.attempt);
      if (nodes == nodes_of_attempts_.end() || node >= nodes->second.size()) {
        return opened->close("the job does not run on such a node any more");
      }
      streams_.open(number, nodes->second[node], request, opened);
    });
    return stream;
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

  /// `may_be`: the nodes that the key is for; nothing: it is the service's.
  asio::awaitable<void> serve(Connection connection, std::optional<std::set<std::string>> may_be) {
    std::string node;
    try {
      const auto contact = std::make_shared<Contact>(Contact{.connection = connection, .node = {}});
      node = contact->node = co_await register_node(connection, may_be);
      contact->log_window = options_.logs.folder.empty() ? 0 : window(kLargestLogWindow);
      contact->code_window = window(kLargestCodeWindow);
      connection->send(
          orders::message_type::kWelcome,
          as_bytes(encode(orders::Welcome{
              .lease = options_.lease, .log_window = contact->log_window, .code_window = contact->code_window})));
      after_change();
      for (;;) handle(contact, co_await connection->receive());
    } catch (const std::exception& error) {
      options_.logger->info("the connection to {} ended: {}", node.empty() ? "an agent" : node, error.what());
    }
    connection->close();
    streams_.gone(node, connection);
    const auto found = connections_.find(node);
    if (found == connections_.end() || found->second != connection) co_return;  // A new one has taken its place.
    connections_.erase(found);
    state_.node_gone(node);
    after_change();
  }

  /// What a node program may call itself that has proved to know the key of that number; nothing: anything.
  std::optional<std::set<std::string>> names_for(std::uint64_t key) const {
    if (key == 0 || key == orders::key_number(options_.key)) return std::nullopt;  // 0: of an earlier version.
    const auto known = keys_.find(key);
    return known == keys_.end() ? std::set<std::string>() : known->second.names;  // It may have gone meanwhile.
  }

  asio::awaitable<std::string> register_node(Connection connection,
                                             const std::optional<std::set<std::string>>& may_be) {
    const net::TimeLimit limit(connection->socket(), kLongestSilence);
    const net::Message first = co_await connection->receive();
    if (first.type != orders::message_type::kRegister) throw Error(ErrorCode::kProtocol, "an agent did not register");
    const Registration registration = registration_from(first);
    if (may_be && !may_be->contains(registration.node)) {
      throw Error(ErrorCode::kProtocol, fmt::format("its key is not one of node {}", registration.node));
    }
    const auto before = connections_.find(registration.node);
    if (before != connections_.end()) before->second->close();
    connections_[registration.node] = connection;
    streams_.came(registration.node, connection,
                  {.streams = registration.carries_streams, .shells = registration.carries_shells});
    state_.node_came(registration, SteadyClock::now());
    co_return registration.node;
  }

  std::uint64_t window(std::uint64_t largest) const {
    return std::clamp(kAllWindows / std::max<std::size_t>(connections_.size(), 1), kSmallestWindow, largest);
  }

  void handle(const std::shared_ptr<Contact>& contact, net::Message message) {
    const Connection& connection = contact->connection;
    const std::string& node = contact->node;
    if (orders::is_about_streams(message.type)) return streams_.deliver(connection, message);
    if (is_about_logs(message.type)) return write_log(contact, std::move(message));
    if (message.type == orders::message_type::kCodeWanted) return read_code(contact, code_request_from(message));
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

  void write_log(const std::shared_ptr<Contact>& contact, net::Message message) {
    const std::size_t bytes = message.payload.size();
    contact->log_bytes += bytes;
    if (contact->log_bytes > 2 * contact->log_window + kMostAround) {
      throw Error(ErrorCode::kProtocol, fmt::format("node {} sends more of its logs than it may", contact->node));
    }
    log_writer_.post([this, contact, bytes, message = std::move(message)](LogStore& store) {
      std::optional<std::pair<std::uint16_t, std::string>> answer;
      try {
        answer = answer_to(store, contact->node, message);
      } catch (const std::exception& error) {
        options_.logger->error("logs of node {}: {}", contact->node, error.what());
      }
      in_loop([this, contact, bytes, answer = std::move(answer), notes = store.take_notes()] {
        contact->log_bytes -= bytes;
        answer ? contact->connection->send(answer->first, as_bytes(answer->second)) : contact->connection->close();
        for (const LogStore::Note& note : notes) state_.note(note.attempt, note.text);
        if (!notes.empty()) after_change();
      });
    });
  }

  void read_code(const std::shared_ptr<Contact>& contact, const orders::CodeRequest& request) {
    contact->code_bytes += request.bytes;
    if (contact->code_bytes + contact->connection->queued_bytes() > 2 * contact->code_window + kMostAround) {
      throw Error(ErrorCode::kProtocol, fmt::format("node {} asks for more of its code than it may", contact->node));
    }
    code_reader_.post([this, contact, request](const CodeShelf& shelf) {
      in_loop([contact, bytes = request.bytes, answer = shelf.answer(contact->node, request)] {
        contact->code_bytes -= bytes;
        contact->connection->send(answer);
      });
    });
  }

  const HubOptions options_;
  net::Endpoint endpoint_;
  UniqueFd listener_;  // Until admit().
  net::EventLoop loop_;
  std::shared_ptr<net::Acceptor> acceptor_;
  internal::HubState state_;
  std::map<std::string, Connection> connections_;
  std::map<std::uint64_t, AttemptNodes> keys_;                         // By key_number().
  std::map<std::string, std::vector<std::string>> nodes_of_attempts_;  // Registered names.
  internal::StreamTable streams_;
  std::atomic<std::uint32_t> last_stream_{0};
  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>(loop_.context());
  asio::steady_timer timer_;
  net::Notifier changed_;
  Mutex mutex_;
  std::vector<HubEvent> events_ GYRE_GUARDED_BY(mutex_);
  // The last: what they still do needs the others.
  internal::TaskThread<LogStore> log_writer_;
  internal::TaskThread<CodeShelf> code_reader_;
};

net::JobKey key_of_nodes(const net::JobKey& key, const std::string& attempt) {
  return derive_key(key, "nodes of attempt " + attempt);
}

Hub::Hub(const HubOptions& options) : work_(std::make_unique<Work>(options)) {}
Hub::~Hub() = default;

void Hub::admit() { work_->admit(); }

void Hub::submit(const WorkOrder& order) { work_->submit(order); }

void Hub::stop(const std::string& attempt, StopReason reason, std::chrono::seconds grace) {
  work_->change([=](internal::HubState& state) { state.stop(attempt, reason, grace); });
}

void Hub::acknowledge(const std::string& attempt) { work_->acknowledge(attempt); }

void Hub::report(const std::string& node, const NodeReport& report) {
  work_->change([=](internal::HubState& state) { state.report(node, report); });
}

void Hub::lose_node(const std::string& node, const std::string& why, NodeLoss loss) {
  work_->change([=](internal::HubState& state) { state.lose_node(node, why, loss); });
}

std::shared_ptr<NodeStream> Hub::open_stream(const orders::StreamRequest& request, std::size_t node) {
  return work_->open_stream(request, node);
}

void Hub::dismiss(const std::string& node) { work_->dismiss(node); }
std::vector<HubEvent> Hub::take_events(Deadline deadline) { return work_->take_events(deadline); }
void Hub::wake() { work_->wake(); }
int Hub::fd() const { return work_->fd(); }
const net::Endpoint& Hub::endpoint() const { return work_->endpoint(); }

}  // namespace gyre::jobs::hub
