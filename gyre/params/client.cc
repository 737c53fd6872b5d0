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
#include "gyre/params/internal/block_exchange.h"
#include "gyre/params/internal/channel.h"
#include "gyre/params/internal/exchange_trace.h"
#include "gyre/params/internal/meetings.h"
#include "gyre/params/internal/requests.h"
#include "gyre/params/internal/shared_values.h"
#include "gyre/params/internal/step_notes.h"
#include "gyre/params/internal/table_exchange.h"
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
  void initialise(Values parameters, Values tables, std::span<const TensorState> states);
  void pull(Values parameters, Values tables);
  std::vector<TensorState> pull_state();
  void set_options(std::vector<UpdateOptions> groups);
  Outcome step(Gradients gradients, Values results, std::vector<bool> present, std::span<const Rows> rows);
  const std::vector<Rows>& changed_rows() const { return changed_; }
  void settle(Values parameters, Values tables);
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
  /// Of a step: the requests with their notes.
  void ask_for_step(bool in_place, std::vector<bool> present, Handles& sent);
  void receive_verdict(Handles& arriving);
  void pause();
  void resume(Meeting meeting);
  void resume_at_servers();
  void set(Values parameters, Values tables, std::span<const TensorState> states);
  bool traced() const { return trace_ && trace_->runs(); }
  void trace_blocks(const std::vector<SteadyClock::time_point>& began, const Handles& sent, const Handles& arriving);
  Outcome outcome_of_step() const;
  template <typename Value>
  void check_sizes(std::span<const std::span<Value>> tensors) const;

  static void wait(const Handles& handles) { internal::wait_for_all(handles); }

  const TrainingSetup setup_;
  std::vector<UpdateOptions> options_;                                    // By group: of the next step …
  bool options_changed_ = false;                                          // … unless they are those of the step before.
  std::vector<std::array<std::byte, internal::kRequestBytes>> requests_;  // By server: the one on its way …
  std::vector<Bytes> notes_;                                              // … and a step's notes.
  std::vector<Rows> changed_;                                             // By table: in the last step.
  Bytes verdict_;                                                         // Where there is a quorum.
  std::vector<bool> shares_;                                              // By server: whether it is on this host.
  std::optional<internal::SharedValues> shared_;                          // Where there is one.
  std::shared_ptr<net::Segment> unshared_;  // Where there is none, from the first memory() on.
  std::vector<std::span<float>> memory_;    // By tensor, likewise.
  std::uint64_t steps_ = 0;
  bool left_ = false;
  std::optional<internal::ExchangeTrace> trace_;
  std::unique_ptr<Connection::Implementation> connection_;  // It goes before the memory above, which it uses.
  group::Group& group_ = connection_->group();
  const Layout layout_ = connection_->layout();
  group::PointToPoint& messages_ = connection_->messages();
  internal::BlockExchange blocks_{messages_, layout_, setup_};
  internal::TableExchange tables_{messages_, layout_, setup_, blocks_.blocks().size()};
  const internal::Meetings meetings_{group_, messages_, layout_};
};

Client::Implementation::Implementation(std::unique_ptr<Connection::Implementation> connection, TrainingSetup setup)
    : setup_((check(setup), std::move(setup))),
      options_(setup_.groups),
      requests_(static_cast<std::size_t>(connection->layout().servers)),
      notes_(requests_.size()),
      changed_(setup_.tables.size()),
      verdict_(setup_.consistency.needs_quorum() ? internal::verdict_bytes(connection->layout().workers) : 0),
      connection_(std::move(connection)) {
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
  blocks_.share_with(shares_);
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
    if (!shared_) unshared_ = net::Segment::create(std::max<std::size_t>(value_count(), 1) * sizeof(float));
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

void Client::Implementation::receive_verdict(Handles& arriving) {
  if (verdict_.empty()) return;
  arriving.push_back(
      messages_.receive(layout_.rank_of_server(0), internal::kVerdictTag, internal::kBytesType, verdict_));
}

void Client::Implementation::trace(std::shared_ptr<Timeline> timeline, std::span<const std::string> tensor_names) {
  GYRE_CHECK(tensor_names.size() == setup_.tensor_values.size());
  trace_.emplace(std::move(timeline), blocks_.blocks(), tensor_names);
  messages_.note_times();
}

/// If the worker that sets them dies, the next one does it again.
void Client::Implementation::initialise(Values parameters, Values tables, std::span<const TensorState> states) {
  check_sizes(parameters);
  pause();
  for (bool set = false; !set;) {
    const int source = meetings_.who_is_here(Meeting::kFirstParameters).front();
    if (source == worker()) this->set(parameters, tables, states);
    std::array<double, 1> done = {source == worker() ? 1.0 : 0.0};
    meetings_.meet(Meeting::kFirstParameters, done);
    set = done[0] > 0;
  }
  pull(parameters, tables);
  meetings_.meet(Meeting::kFirstParameters, {});
}

void Client::Implementation::set(Values parameters, Values tables, std::span<const TensorState> states) {
  if (!states.empty()) GYRE_CHECK(states.size() == setup_.tensor_values.size() + setup_.tables.size());
  Handles sent;
  ask_all({.kind = RequestKind::kSet, .step = states.empty() ? 0U : 1U}, sent);
  blocks_.send(std::vector<std::span<const float>>(parameters.begin(), parameters.end()), false, sent);
  wait(sent);
  tables_.send_whole(tables);
  if (states.empty()) return;
  blocks_.send_state(states.first(parameters.size()));
  tables_.send_state(states.subspan(parameters.size()));
}

void Client::Implementation::pull(Values parameters, Values tables) {
  GYRE_CHECK(setup_.rule() != Rule::kAverage);
  check_sizes(parameters);
  const auto began = SteadyClock::now();
  Handles handles;
  ask_all({.kind = RequestKind::kPull}, handles);
  blocks_.receive(parameters, false, handles);
  receive_verdict(handles);
  wait(handles);
  tables_.receive_whole(tables);
  blocks_.spread(parameters, false);
  if (traced()) trace_->add_call("PULL", began);
}

std::vector<TensorState> Client::Implementation::pull_state() {
  std::vector<TensorState> states;
  const auto add = [&](std::uint32_t group, std::uint64_t values) {
    TensorState& state = states.emplace_back();
    state.slots.resize(UpdateRule(setup_.groups[group]).slots(), std::vector<float>(static_cast<std::size_t>(values)));
  };
  const std::size_t tensors = setup_.tensor_values.size();
  for (std::size_t i = 0; i < tensors; ++i) add(setup_.group_of(i), setup_.tensor_values[i]);
  for (const Table& table : setup_.tables) add(table.group, table.rows * table.columns);
  Handles handles;
  ask_all({.kind = RequestKind::kState}, handles);
  blocks_.receive_state(std::span(states).first(tensors));
  tables_.receive_state(std::span(states).subspan(tensors));
  wait(handles);
  return states;
}

void Client::Implementation::set_options(std::vector<UpdateOptions> groups) {
  GYRE_CHECK(groups.size() == options_.size());
  if (groups == options_) return;
  for (std::size_t i = 0; i < groups.size(); ++i) UpdateRule(options_[i]).check_successor(UpdateRule(groups[i]));
  for (const Table& table : setup_.tables) check_for_tables(groups[table.group]);
  options_ = std::move(groups);
  options_changed_ = true;
}

void Client::Implementation::ask_for_step(bool in_place, std::vector<bool> present, Handles& sent) {
  if (std::ranges::find(present, false) == present.end()) present.clear();
  internal::StepNotes notes{.present = std::move(present)};
  if (std::exchange(options_changed_, false)) notes.groups = options_;
  for (int server = 0; server < layout_.servers; ++server) {
    notes.table_rows = tables_.rows_for(server);
    Bytes& bytes = notes_[static_cast<std::size_t>(server)];
    bytes = notes.is_empty() ? Bytes() : internal::encode(notes);
    const bool shares = shares_[static_cast<std::size_t>(server)];
    const RequestKind kind = in_place && shares ? RequestKind::kStepInPlace : RequestKind::kStep;
    ask(server, {.kind = kind, .payload_bytes = bytes.size(), .step = steps_}, sent);
    if (!bytes.empty()) send_payload(server, bytes, sent);
  }
}

Client::Outcome Client::Implementation::step(Gradients gradients, Values results, std::vector<bool> present,
                                             std::span<const Rows> rows) {
  check_sizes(gradients);
  check_sizes(results);
  if (!present.empty()) GYRE_CHECK(present.size() == setup_.tensor_values.size() + setup_.tables.size());
  tables_.prepare(rows);
  const bool traces = traced();
  const auto began = SteadyClock::now();
  std::vector<SteadyClock::time_point> blocks_began;
  const bool in_place = shared_ && lie_in_memory(gradients) && lie_in_memory(results);
  ++steps_;
  Handles requests;
  ask_for_step(in_place, std::move(present), requests);
  Handles sent;
  blocks_.send(gradients, in_place, sent, traces ? &blocks_began : nullptr);
  Handles arriving;
  blocks_.receive(results, in_place, arriving);
  tables_.exchange(requests);
  receive_verdict(arriving);
  std::exception_ptr failure;
  const auto note_failure = [&](const auto& work) {  // All have to have arrived before this returns.
    try {
      work();
    } catch (const Error&) {
      if (!failure) failure = std::current_exception();
    }
  };
  note_failure([&] { wait(requests); });
  note_failure([&] { wait(sent); });
  note_failure([&] { changed_ = tables_.receive(); });
  note_failure([&] { wait(arriving); });
  if (failure) std::rethrow_exception(failure);
  blocks_.spread(results, in_place);
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
  for (std::size_t block = 0; block < began.size(); ++block) {  // Behind the answers is the verdict.
    trace_->add_block(block, {.began = began[block],
                              .taken = sent[block].take_result().finished,
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

void Client::Implementation::settle(Values parameters, Values tables) {
  const auto began = SteadyClock::now();
  pause();
  meetings_.meet(Meeting::kSettle, {});
  if (setup_.rule() != Rule::kAverage) {
    pull(parameters, tables);
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
void Client::initialise(Values parameters, Values tables, std::span<const TensorState> states) {
  implementation_->initialise(parameters, tables, states);
}
void Client::pull(Values parameters, Values tables) { implementation_->pull(parameters, tables); }
std::vector<TensorState> Client::pull_state() { return implementation_->pull_state(); }
void Client::set_options(std::vector<UpdateOptions> groups) { implementation_->set_options(std::move(groups)); }
Client::Outcome Client::step(Gradients gradients, Values results, std::vector<bool> present,
                             std::span<const Rows> rows) {
  return implementation_->step(gradients, results, std::move(present), rows);
}
const std::vector<Rows>& Client::changed_rows() const { return implementation_->changed_rows(); }
void Client::settle(Values parameters, Values tables) { implementation_->settle(parameters, tables); }
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
