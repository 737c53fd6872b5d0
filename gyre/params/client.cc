#include "gyre/params/client.h"

#include <algorithm>
#include <array>
#include <exception>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gyre/base/check.h"
#include "gyre/base/error.h"
#include "gyre/group/messages/point_to_point.h"
#include "gyre/net/segment.h"
#include "gyre/params/internal/channel.h"
#include "gyre/params/internal/exchange_trace.h"
#include "gyre/params/internal/meetings.h"
#include "gyre/params/internal/requests.h"
#include "gyre/params/internal/shared_values.h"
#include "gyre/params/internal/verdicts.h"

namespace gyre::params {

using internal::Meeting;
using internal::Request;
using internal::RequestKind;

class Connection::Implementation {
 public:
  Implementation(group::Group& group, const Layout& layout)
      : group_(group),
        layout_((internal::check_layout(group, layout, false), layout)),
        messages_(group, internal::kChannel, internal::describe_message) {}

  group::Group& group() const { return group_; }
  const Layout& layout() const { return layout_; }
  group::PointToPoint& messages() { return messages_; }

 private:
  group::Group& group_;
  const Layout layout_;
  group::PointToPoint messages_;
};

class Client::Implementation {
 public:
  Implementation(std::unique_ptr<Connection::Implementation> connection, TrainingSetup setup);

  int worker() const { return layout_.worker_of(group_.rank()); }
  int workers() const { return layout_.workers; }
  void trace(std::shared_ptr<Timeline> timeline, std::span<const std::string> tensor_names);
  Values memory();
  void initialise(Values parameters);
  void pull(Values parameters);
  Outcome step(Gradients gradients, Values results, double rate);
  void settle(Values parameters);
  bool announce();
  void sum(std::span<double> values);
  void broadcast(std::span<std::byte> bytes);
  void leave();
  void leave_group() { group_.leave(); }

 private:
  /// Sends of one call, which must be done before it returns.
  using Handles = std::vector<group::MessageHandle>;

  void share_values();
  template <typename Value>
  bool lie_in_memory(std::span<const std::span<Value>> tensors);
  std::size_t value_count() const;
  void ask_all(const Request& request, Handles& sent);
  void ask(int server, const Request& request, Handles& sent);
  void send_payload(int server, std::span<const std::byte> payload, Handles& sent);
  /// `began`: gets the time at which each block sets out, where there is one.
  template <typename Value>
  void send_blocks(std::span<const std::span<Value>> tensors, bool in_place, Handles& sent,
                   std::vector<SteadyClock::time_point>* began = nullptr);
  void receive_blocks(Values tensors, bool in_place, Handles& arriving);
  void receive_verdict(Handles& arriving);
  void pause();
  void resume(Meeting meeting);
  void resume_at_servers();
  void set(Values parameters);
  bool traced() const { return trace_ && trace_->runs(); }
  void trace_blocks(const std::vector<SteadyClock::time_point>& began, const Handles& sent, const Handles& arriving);
  Outcome outcome_of_step() const;
  void spread(std::size_t block, Values tensors) const;
  template <typename Value>
  void check_sizes(std::span<const std::span<Value>> tensors) const;
  int rank_of(std::size_t block) const { return layout_.rank_of_server(blocks_[block].server); }
  bool is_shared(std::size_t block) const { return shares_[static_cast<std::size_t>(blocks_[block].server)]; }

  static void wait(const Handles& handles) { internal::wait_for_all(handles); }

  const TrainingSetup setup_;
  const std::vector<Block> blocks_;
  std::vector<std::array<std::byte, internal::kRequestBytes>> requests_;  // By server: the one on its way.
  // By block, for blocks of several tensors: these travel as one message.
  std::vector<std::vector<float>> out_;
  std::vector<std::vector<float>> in_;
  Bytes verdict_;                                 // Where there is a quorum.
  std::vector<bool> shares_;                      // By server: whether it is on this host.
  std::optional<internal::SharedValues> shared_;  // Where there is one.
  std::shared_ptr<net::Segment> unshared_;        // Where there is none, from the first memory() on.
  std::vector<std::span<float>> memory_;          // By tensor, likewise.
  std::uint64_t steps_ = 0;
  bool left_ = false;
  std::optional<internal::ExchangeTrace> trace_;
  std::unique_ptr<Connection::Implementation> connection_;  // It goes before the memory above, which it uses.
  group::Group& group_ = connection_->group();
  const Layout layout_ = connection_->layout();
  group::PointToPoint& messages_ = connection_->messages();
  const internal::Meetings meetings_{group_, messages_, layout_};
};

Client::Implementation::Implementation(std::unique_ptr<Connection::Implementation> connection, TrainingSetup setup)
    : setup_(std::move(setup)),
      blocks_((check(setup_), divide_into_blocks(setup_.tensor_values, setup_.shards))),
      requests_(static_cast<std::size_t>(connection->layout().servers)),
      out_(blocks_.size()),
      in_(blocks_.size()),
      verdict_(setup_.consistency.needs_quorum() ? internal::verdict_bytes(connection->layout().workers) : 0),
      connection_(std::move(connection)) {
  for (std::size_t block = 0; block < blocks_.size(); ++block) {
    if (blocks_[block].ranges.size() == 1) continue;
    out_[block].resize(static_cast<std::size_t>(blocks_[block].count));
    in_[block].resize(static_cast<std::size_t>(blocks_[block].count));
  }
  const Bytes payload = encode(setup_);
  Handles sent;
  ask_all({.kind = RequestKind::kConfigure, .payload_bytes = payload.size()}, sent);
  for (int server = 0; server < layout_.servers; ++server) send_payload(server, payload, sent);
  wait(sent);
  share_values();
}

std::size_t Client::Implementation::value_count() const {
  const auto& counts = setup_.tensor_values;
  return static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}));
}

void Client::Implementation::share_values() {
  for (int server = 0; server < layout_.servers; ++server) {
    shares_.push_back(internal::SharedValues::between(group_, layout_, server, worker()));
  }
  if (std::ranges::find(shares_, true) != shares_.end()) {
    shared_.emplace(group_, layout_, worker(), value_count());
  }
}

void Client::Implementation::ask(int server, const Request& request, Handles& sent) {
  auto& bytes = requests_[static_cast<std::size_t>(server)];
  bytes = internal::encode(request);
  sent.push_back(messages_.send(layout_.rank_of_server(server), internal::kRequestTag, internal::kBytesType, bytes));
}

void Client::Implementation::ask_all(const Request& request, Handles& sent) {
  for (int server = 0; server < layout_.servers; ++server) ask(server, request, sent);
}

void Client::Implementation::send_payload(int server, std::span<const std::byte> payload, Handles& sent) {
  sent.push_back(messages_.send(layout_.rank_of_server(server), internal::kPayloadTag, internal::kBytesType, payload));
}

Client::Values Client::Implementation::memory() {
  if (memory_.empty()) {
    if (!shared_) unshared_ = net::Segment::create(value_count() * sizeof(float));
    std::span<float> values =
        shared_ ? shared_->values() : std::span(reinterpret_cast<float*>(unshared_->bytes().data()), value_count());
    for (const std::uint64_t count : setup_.tensor_values) {
      memory_.push_back(values.first(static_cast<std::size_t>(count)));
      values = values.subspan(static_cast<std::size_t>(count));
    }
  }
  return memory_;
}

template <typename Value>
bool Client::Implementation::lie_in_memory(std::span<const std::span<Value>> tensors) {
  const Values memory = this->memory();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].data() != memory[i].data()) return false;
  }
  return true;
}

template <typename Value>
void Client::Implementation::check_sizes(std::span<const std::span<Value>> tensors) const {
  GYRE_CHECK(tensors.size() == setup_.tensor_values.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) GYRE_CHECK(tensors[i].size() == setup_.tensor_values[i]);
}

template <typename Value>
void Client::Implementation::send_blocks(std::span<const std::span<Value>> tensors, bool in_place, Handles& sent,
                                         std::vector<SteadyClock::time_point>* began) {
  for (std::size_t block = 0; block < blocks_.size(); ++block) {
    if (began != nullptr) began->push_back(SteadyClock::now());
    if (in_place && is_shared(block)) {
      sent.push_back(messages_.send(rank_of(block), internal::tag_of_block(block), internal::kInPlaceType, {}));
      continue;
    }
    const std::vector<Range>& ranges = blocks_[block].ranges;
    std::span<const float> values = tensors[ranges.front().tensor].subspan(ranges.front().first, ranges.front().count);
    if (ranges.size() > 1) {
      auto place = out_[block].begin();
      for (const Range& range : ranges) {
        place = std::ranges::copy(tensors[range.tensor].subspan(range.first, range.count), place).out;
      }
      values = out_[block];
    }
    sent.push_back(
        messages_.send(rank_of(block), internal::tag_of_block(block), internal::kBytesType, std::as_bytes(values)));
  }
}

void Client::Implementation::receive_blocks(Values tensors, bool in_place, Handles& arriving) {
  for (std::size_t block = 0; block < blocks_.size(); ++block) {
    if (in_place && is_shared(block)) {
      arriving.push_back(messages_.receive(rank_of(block), internal::tag_of_block(block), internal::kInPlaceType, {}));
      continue;
    }
    const Range& first = blocks_[block].ranges.front();
    const std::span<float> into =
        in_[block].empty() ? tensors[first.tensor].subspan(first.first, first.count) : std::span<float>(in_[block]);
    arriving.push_back(messages_.receive(rank_of(block), internal::tag_of_block(block), internal::kBytesType,
                                         std::as_writable_bytes(into)));
  }
}

void Client::Implementation::receive_verdict(Handles& arriving) {
  if (verdict_.empty()) return;
  arriving.push_back(
      messages_.receive(layout_.rank_of_server(0), internal::kVerdictTag, internal::kBytesType, verdict_));
}

/// From where a block of several tensors has arrived to the tensors.
void Client::Implementation::spread(std::size_t block, Values tensors) const {
  std::span<const float> values = in_[block];
  if (values.empty()) return;
  for (const Range& range : blocks_[block].ranges) {
    std::ranges::copy(values.first(range.count), tensors[range.tensor].subspan(range.first, range.count).begin());
    values = values.subspan(range.count);
  }
}

void Client::Implementation::trace(std::shared_ptr<Timeline> timeline, std::span<const std::string> tensor_names) {
  GYRE_CHECK(tensor_names.size() == setup_.tensor_values.size());
  trace_.emplace(std::move(timeline), blocks_, tensor_names);
  messages_.note_times();
}

/// If the worker that sets them dies, the next one does it again.
void Client::Implementation::initialise(Values parameters) {
  check_sizes(parameters);
  pause();
  for (bool set = false; !set;) {
    const int source = meetings_.who_is_here(Meeting::kFirstParameters).front();
    if (source == worker()) this->set(parameters);
    std::array<double, 1> done = {source == worker() ? 1.0 : 0.0};
    meetings_.meet(Meeting::kFirstParameters, done);
    set = done[0] > 0;
  }
  pull(parameters);
  meetings_.meet(Meeting::kFirstParameters, {});
}

void Client::Implementation::set(Values parameters) {
  Handles sent;
  ask_all({.kind = RequestKind::kSet}, sent);
  send_blocks(parameters, false, sent);
  wait(sent);
}

void Client::Implementation::pull(Values parameters) {
  GYRE_CHECK(setup_.update.rule != Rule::kAverage);
  check_sizes(parameters);
  const auto began = SteadyClock::now();
  Handles handles;
  ask_all({.kind = RequestKind::kPull}, handles);
  receive_blocks(parameters, false, handles);
  receive_verdict(handles);
  wait(handles);
  for (std::size_t block = 0; block < blocks_.size(); ++block) spread(block, parameters);
  if (traced()) trace_->add_call("PULL", began);
}

Client::Outcome Client::Implementation::step(Gradients gradients, Values results, double rate) {
  check_sizes(gradients);
  check_sizes(results);
  const bool traces = traced();
  const auto began = SteadyClock::now();
  std::vector<SteadyClock::time_point> blocks_began;
  const bool in_place = shared_ && lie_in_memory(gradients) && lie_in_memory(results);
  ++steps_;
  Handles sent;
  for (int server = 0; server < layout_.servers; ++server) {
    const bool shares = shares_[static_cast<std::size_t>(server)];
    const RequestKind kind = in_place && shares ? RequestKind::kStepInPlace : RequestKind::kStep;
    ask(server, {.kind = kind, .rate = rate, .step = steps_}, sent);
  }
  send_blocks(gradients, in_place, sent, traces ? &blocks_began : nullptr);
  Handles arriving;
  receive_blocks(results, in_place, arriving);
  receive_verdict(arriving);
  std::exception_ptr failure;
  try {
    wait(sent);
  } catch (const Error&) {
    failure = std::current_exception();
  }
  wait(arriving);
  if (failure) std::rethrow_exception(failure);
  for (std::size_t block = 0; block < blocks_.size(); ++block) {
    if (!in_place || !is_shared(block)) spread(block, results);
  }
  const Outcome outcome = outcome_of_step();
  if (traces) {
    trace_blocks(blocks_began, sent, arriving);
    trace_->add_call("STEP", began, outcome.accepted ? std::string() : "came too late and was dropped");
  }
  return outcome;
}

Client::Outcome Client::Implementation::outcome_of_step() const {
  if (verdict_.empty()) return {};
  Quorum::Verdict verdict = internal::decode_verdict(verdict_, layout_.workers);
  return {.accepted = std::ranges::find(verdict.late, worker()) == verdict.late.end(),
          .contributors = std::move(verdict.contributors)};
}

void Client::Implementation::trace_blocks(const std::vector<SteadyClock::time_point>& began, const Handles& sent,
                                          const Handles& arriving) {
  const std::size_t requests = sent.size() - blocks_.size();  // Before the blocks; behind the answers is the verdict.
  for (std::size_t block = 0; block < blocks_.size(); ++block) {
    trace_->add_block(block, {.began = began[block],
                              .taken = sent[requests + block].take_result().finished,
                              .answered = arriving[block].take_result().finished});
  }
}

bool Client::Implementation::announce() {
  GYRE_CHECK(setup_.consistency.backup_workers > 0);
  const auto began = SteadyClock::now();
  Handles handles;
  ask(0, {.kind = RequestKind::kAnnounce}, handles);
  receive_verdict(handles);
  wait(handles);
  const Quorum::Verdict verdict = internal::decode_verdict(verdict_, layout_.workers);
  const bool admitted = std::ranges::find(verdict.admitted, worker()) != verdict.admitted.end();
  if (traced() && !admitted) trace_->add_call("STEP", began, "came too late and was dropped");
  return admitted;
}

/// In bounded training no other worker waits for this one from now on, until it resumes or pulls.
void Client::Implementation::pause() {
  if (setup_.consistency.kind != Consistency::kBounded) return;
  Handles sent;
  ask_all({.kind = RequestKind::kPause}, sent);
  wait(sent);
}

/// Returns when all workers have resumed, so that none runs ahead of one that still pauses.
void Client::Implementation::resume(Meeting meeting) {
  if (setup_.consistency.kind != Consistency::kBounded) return;
  resume_at_servers();
  meetings_.meet(meeting, {});
}

void Client::Implementation::resume_at_servers() {
  Handles handles;
  ask_all({.kind = RequestKind::kResume}, handles);
  for (int server = 0; server < layout_.servers; ++server) {
    handles.push_back(
        messages_.receive(layout_.rank_of_server(server), internal::kPayloadTag, internal::kBytesType, {}));
  }
  wait(handles);
}

void Client::Implementation::settle(Values parameters) {
  const auto began = SteadyClock::now();
  pause();
  meetings_.meet(Meeting::kSettle, {});
  if (setup_.update.rule != Rule::kAverage) {
    pull(parameters);
    meetings_.meet(Meeting::kSettle, {});
  }
  if (traced()) trace_->add_call("SETTLE", began);
}

void Client::Implementation::sum(std::span<double> values) {
  const auto began = SteadyClock::now();
  pause();
  meetings_.meet(Meeting::kMetrics, values);
  resume(Meeting::kMetrics);
  if (traced()) trace_->add_call("SUM", began);
}

void Client::Implementation::broadcast(std::span<std::byte> bytes) {
  pause();
  meetings_.broadcast(bytes);
  resume(Meeting::kBroadcast);
}

void Client::Implementation::leave() {
  if (std::exchange(left_, true)) return;
  Handles sent;
  ask_all({.kind = RequestKind::kLeave}, sent);
  wait(sent);
}

Client::Client(std::unique_ptr<Connection> connection, TrainingSetup setup)
    : implementation_(std::make_unique<Implementation>(std::move(connection->implementation_), std::move(setup))) {}

Client::Client(group::Group& group, const Layout& layout, TrainingSetup setup)
    : Client(std::make_unique<Connection>(group, layout), std::move(setup)) {}

Client::~Client() {
  if (std::uncaught_exceptions() > 0) return;
  try {
    implementation_->leave();
    // While the links are open: to others a link that closes before is a rank that has died.
    implementation_->leave_group();
  } catch (const Error&) {  // The group has failed, and every wait reports that.
    return;
  }
}

void Client::trace(std::shared_ptr<Timeline> timeline, std::span<const std::string> tensor_names) {
  implementation_->trace(std::move(timeline), tensor_names);
}
int Client::worker() const { return implementation_->worker(); }
int Client::workers() const { return implementation_->workers(); }
Client::Values Client::memory() { return implementation_->memory(); }
void Client::initialise(Values parameters) { implementation_->initialise(parameters); }
void Client::pull(Values parameters) { implementation_->pull(parameters); }
Client::Outcome Client::step(Gradients gradients, Values results, double rate) {
  return implementation_->step(gradients, results, rate);
}
void Client::settle(Values parameters) { implementation_->settle(parameters); }
bool Client::announce() { return implementation_->announce(); }
void Client::sum(std::span<double> values) { implementation_->sum(values); }
void Client::broadcast(std::span<std::byte> bytes) { implementation_->broadcast(bytes); }
void Client::leave() { implementation_->leave(); }

Connection::Connection(group::Group& group, const Layout& layout)
    : implementation_(std::make_unique<Implementation>(group, layout)) {}

Connection::~Connection() = default;

void Connection::leave_without_training() {
  const auto request = internal::encode(Request{.kind = RequestKind::kLeave});
  const Layout& layout = implementation_->layout();
  for (int server = 0; server < layout.servers; ++server) {
    implementation_->messages()
        .send(layout.rank_of_server(server), internal::kRequestTag, internal::kBytesType, request)
        .wait();
  }
  implementation_->group().leave();
}

}  // namespace gyre::params
