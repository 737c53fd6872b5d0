#include "gyre/engine/internal/open/open_lane.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <numeric>
#include <string_view>
#include <utility>

#include "gyre/base/check.h"
#include "gyre/base/thread.h"
#include "gyre/engine/internal/channels.h"
#include "gyre/engine/internal/failure.h"
#include "gyre/engine/internal/open/neutral.h"
#include "gyre/engine/internal/open/signature_check.h"

namespace gyre::engine::internal {

namespace {

constexpr std::size_t kReadBytes = 64 * 1024;
/// A rank that has so many operations in flight leaves the announcement of others to the lane's thread, which sends as
/// many at once as have come by the time it gets to it.
constexpr std::size_t kManyInFlight = 64;
/// The coordinator always reads; if it has not for this long, its process is stopped or its host is gone.
constexpr std::chrono::seconds kAnnounceTimeout{60};

group::LaneOptions lane_options(const group::Group& group, std::chrono::milliseconds timeout) {
  return {kOpenLaneChannel, collectives::segment_bytes_for(group.topology().local_size(), 0), timeout};
}

}  // namespace

OpenLane::OpenLane(group::Group& group, std::unique_ptr<net::Stream> coordinator, int parent_rank, JoinWatch& joins,
                   PlanRegistry& plans, const TimelineRows& timeline, const Logger& logger,
                   const EngineOptions& options)
    : group_(group),
      timeline_(timeline),
      lane_(group, lane_options(group, options.collective_timeout)),
      executor_(lane_, timeline, logger),
      coordinator_(std::move(coordinator)),
      parent_rank_(parent_rank),
      joins_(joins),
      plans_(plans),
      waits_(options.waits),
      finder_(options.location, options.waits->program_threads()),
      only_known_threads_(options.only_known_threads) {
  note_this_thread();
  if (coordinator_) thread_ = start_thread("the open lane", [this] { run(); });
  waits_->add(this);
}

OpenLane::~OpenLane() {
  waits_->remove(this);
  shutdown();
}

void OpenLane::note_this_thread() {
  if (last_user_.exchange(thread_serial(), std::memory_order_relaxed) == thread_serial()) return;
  waits_->note_this_thread();
}

void OpenLane::begin_negotiation(const Request& request) {
  if (!timeline_.enabled()) return;
  timeline_.begin(request.name, "NEGOTIATE_" + phase_name(request.signature.kind));
}

void OpenLane::end_negotiation(const Request& request) {
  if (!timeline_.enabled()) return;
  timeline_.end(request.name);
  timeline_.begin(request.name, phase_name(request.signature.kind));
}

std::vector<Handle> OpenLane::submit(std::vector<Request> requests) {
  note_this_thread();
  std::vector<Handle> handles(requests.size());
  const MutexLock lock(mutex_);
  if (failure_) {
    for (const Handle& handle : handles) handle.fail(*failure_);
    return handles;
  }
  std::unordered_set<std::string_view> names;
  for (const Request& request : requests) {
    const bool repeated = !names.insert(request.name).second;
    if (repeated || in_flight_.contains(request.name) || reserved_.contains(request.name)) {
      throw invalid_request(
          request, "an operation of this name is in flight already on this rank; wait for it, or use another name");
    }
  }
  AnnouncementContent content;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    begin_negotiation(requests[i]);
    content.operations.push_back(announcement_of(requests[i], group_.rank(), group_.size()));
    // A copy: the request, and the name in it, are moved away before the map reads its key.
    const std::string name = requests[i].name;
    in_flight_.emplace(name, Pending{std::move(requests[i]), handles[i], {}, ++submissions_});
  }
  if (!coordinator_) {
    run_alone();
    return handles;
  }
  time_the_wait();
  if (in_flight_.size() <= kManyInFlight) {
    send(std::move(content));
    return handles;
  }
  if (unsent_.empty()) has_notes_.notify();
  std::ranges::move(content.operations, std::back_inserter(unsent_));
  return handles;
}

void OpenLane::send(AnnouncementContent content) {
  std::vector<Announced> operations = std::exchange(unsent_, {});
  if (!operations.empty()) {
    std::ranges::move(content.operations, std::back_inserter(operations));
    content.operations = std::move(operations);
  }
  const Bytes message = net::encode_message(kAnnouncementMessage, encoder_.encode(content));
  try {
    net::write_exactly(*coordinator_, message, Deadline::after(kAnnounceTimeout));
  } catch (const Error& error) {
    // The handles fail through the lane's thread, with the reason that all ranks share. It finds out by itself that
    // rank 0 has left in good order.
    const Error cause = error.code() == ErrorCode::kPeerLost ? group_.cause_of_loss(parent_rank_, error) : error;
    if (cause.code() != ErrorCode::kPeerLeft) group_.abort(cause);
  }
}

Handle OpenLane::join(const JoinAnnouncement& join) {
  Pending pending;
  pending.request.name = kJoinName;
  const Handle handle = pending.handle;
  const MutexLock lock(mutex_);
  if (failure_) {
    handle.fail(*failure_);
    return handle;
  }
  if (!in_flight_.emplace(pending.request.name, pending).second) {
    throw Error(ErrorCode::kInvalidArgument, "this rank has joined already and waits for the others");
  }
  AnnouncementContent content;
  content.join = join;
  if (coordinator_) {
    time_the_wait();
    send(std::move(content));
  } else {
    in_flight_.clear();
    handle.complete({{}, {0}, {}});
  }
  return handle;
}

void OpenLane::announce_step(const PlanStep& step) {
  const MutexLock lock(notes_mutex_);
  notes_.steps.push_back(step);
  has_notes_.notify();
}

void OpenLane::report_stall(const StalledStep& stalled) {
  const MutexLock lock(notes_mutex_);
  notes_.stalled_step = stalled;  // An earlier one is out of date.
  has_notes_.notify();
}

AnnouncementContent OpenLane::take_notes() {
  const MutexLock lock(notes_mutex_);
  has_notes_.clear();
  return std::exchange(notes_, {});
}

void OpenLane::send_notes() {
  AnnouncementContent notes = take_notes();
  const MutexLock lock(mutex_);
  const bool any = !notes.steps.empty() || notes.stalled_step || !unsent_.empty();
  if (any && !failure_ && !stopping_) send(std::move(notes));
}

void OpenLane::answer_question() {
  auto found = finder_.take();
  if (!found) return;
  AnnouncementContent content;
  content.stall_answer = {found->question, std::move(found->program), plans_.awaited_steps(),
                          waits_->look(this, only_known_threads_ ? nullptr : &found->threads)};
  const MutexLock lock(mutex_);
  if (!failure_ && !stopping_) send(std::move(content));
}

bool OpenLane::reserve(const std::string& name) {
  const MutexLock lock(mutex_);
  if (failure_) throw Error(*failure_);
  if (in_flight_.contains(name)) return false;
  return reserved_.insert(name).second;
}

void OpenLane::release(const std::string& name) {
  const MutexLock lock(mutex_);
  reserved_.erase(name);
}

bool OpenLane::idle() {
  const MutexLock lock(mutex_);
  return in_flight_.empty() && reserved_.empty() && !failure_;
}

void OpenLane::run() {
  Error failure(ErrorCode::kShutDown, "the engine was shut down on this rank");
  try {
    serve();
  } catch (const std::exception& error) {
    const Error seen = as_error(error);
    // A broken link may be the first sign of a death that the group is about to explain.
    failure = seen.code() == ErrorCode::kPeerLost ? group_.cause_of_loss(parent_rank_, seen) : seen;
    // That rank 0 has left ends this lane; what other lanes have begun with it may still complete.
    if (failure.code() != ErrorCode::kPeerLeft) failure = abort_group(failure);
    // Before those who wait here go on, and leave the other engines of the circle.
    if (kept_report()) waits_->fail_with_report(this);
  }
  fail_all(failure);
}

Error OpenLane::abort_group(const std::exception& cause) {
  const Error reason = as_error(cause);
  group_.abort(reason);
  return group_.abort_signal().reason().value_or(reason);
}

void OpenLane::fail_all(const Error& failure) {
  std::unordered_map<std::string, Pending> failed;
  {
    const MutexLock lock(mutex_);
    failure_ = failure;
    failed.swap(in_flight_);
    time_the_wait();
  }
  for (const auto& [name, pending] : failed) pending.handle.fail(failure);
  joins_.wake();
  agreements_.end(failure);
}

void OpenLane::serve() {
  for (;;) {
    std::array<pollfd, 5> polled = {{{coordinator_->fd(), POLLIN, 0},
                                     {stop_.fd(), POLLIN, 0},
                                     {group_.abort_signal().fd(), POLLIN, 0},
                                     {finder_.fd(), POLLIN, 0},
                                     {has_notes_.fd(), POLLIN, 0}}};
    if (::poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) throw system_error("poll", errno);
    group_.abort_signal().throw_if_triggered();
    {
      const MutexLock lock(mutex_);
      if (stopping_) return;
    }
    if (polled[4].revents != 0) send_notes();
    if (polled[3].revents != 0) answer_question();
    if (polled[0].revents != 0) receive();
  }
}

void OpenLane::receive() {
  std::array<std::byte, kReadBytes> buffer;
  for (;;) {
    const std::size_t count = coordinator_->read_some(buffer);
    parser_.append(std::span(buffer).first(count));
    while (auto message = parser_.next()) {
      if (message->type == kEndMessage) throw decode_end(message->payload);
      if (message->type != kOrderMessage) {
        throw Error(ErrorCode::kProtocol, fmt::format("the coordinator sent a message of type {}", message->type));
      }
      const Order order = decoder_.decode(message->payload);
      check_order(order, group_.size());
      execute(order);
    }
    if (count < buffer.size()) return;
  }
}

void OpenLane::execute(const Order& order) {
  refuse(order.refusals);
  if (order.announce_steps) {
    joins_.set_somebody_has_joined(true);
    plans_.announce_begun_steps();
  }
  for (const PlanStep& step : order.steps) joins_.follow(step);
  for (const Bucket& bucket : order.buckets) execute_bucket(bucket);
  if (order.last_rank_to_join) finish_join(*order.last_rank_to_join);
  if (order.deadlock) waits_->keep_report(*order.deadlock);
  if (order.question != 0) finder_.look(order.question);
  if (order.engine != 0) engine_ = order.engine;
}

void OpenLane::refuse(const std::vector<Refusal>& refusals) {
  // All names are free again before anybody learns of the first refusal: who does may submit a group anew at once.
  std::vector<std::pair<const Refusal*, Handle>> refused;
  {
    const MutexLock lock(mutex_);
    for (const Refusal& refusal : refusals) {
      const auto found = in_flight_.find(refusal.name);
      if (found == in_flight_.end()) continue;
      refused.emplace_back(&refusal, found->second.handle);
      in_flight_.erase(found);
    }
    time_the_wait();
  }
  for (const auto& [refusal, handle] : refused) {
    if (refusal->name != kJoinName) timeline_.end(refusal->name);
    handle.fail(Error(refusal->code, refusal->message));
    if (refusal->name == kJoinName) {
      joins_.set_somebody_has_joined(false);
      joins_.end_period();
    }
  }
}

void OpenLane::finish_join(int last_rank) {
  joins_.set_somebody_has_joined(false);
  joins_.end_period();
  Handle handle;
  {
    const MutexLock lock(mutex_);
    const auto found = in_flight_.find(std::string(kJoinName));
    if (found == in_flight_.end()) {
      throw Error(ErrorCode::kProtocol, "the coordinator ended a join that this rank has not asked for");
    }
    handle = found->second.handle;
    in_flight_.erase(found);
    time_the_wait();
  }
  handle.complete({{}, {last_rank}, {}});
  joins_.wake();
}

void OpenLane::run_alone() {
  // In a group of one everything is ready at once.
  while (!in_flight_.empty()) {
    const auto first = in_flight_.begin();
    const Pending pending = std::move(first->second);
    in_flight_.erase(first);
    const OrderedOperation operation{pending.request.name, {}, true};
    timeline_.mark_cycle();
    end_negotiation(pending.request);
    try {
      Result result = std::move(executor_.run({operation}, {pending})[0]);
      timeline_.end(pending.request.name);
      pending.handle.complete(std::move(result));
      if (pending.request.signature.elsewhere) agreements_.add(1);
    } catch (const std::exception& error) {
      pending.handle.fail(as_error(error));
    }
  }
}

void OpenLane::execute_bucket(const Bucket& bucket) {
  std::vector<Pending> pending = take(bucket);
  for (const Pending& one : pending) end_negotiation(one.request);
  std::vector<Result> results;
  try {
    for (const Pending& one : pending) {
      if (&one == pending.data()) continue;
      check_fusable(pending.front().request.signature, one.request.signature, one.request.name);
    }
    if (bucket.front().rows == RowKnowledge::kDisputed && dispute(pending.front())) return;
    results = executor_.run(bucket, pending);
  } catch (const std::exception& error) {
    const std::string what = describe_operation(pending.front().request, pending.size() - 1);
    const Error failure = abort_group(name_collective(error, what, group_));
    for (const Pending& one : pending) one.handle.fail(failure);
    throw Error(failure);
  }
  for (const Pending& one : pending) timeline_.end(one.request.name);
  {
    const MutexLock lock(mutex_);
    for (const Pending& one : pending) reserved_.erase(one.request.name);
    executes_ = false;
    time_the_wait();
  }
  for (std::size_t i = 0; i < pending.size(); ++i) {
    pending[i].handle.complete(std::move(results[i]));
  }
  if (pending.front().request.signature.elsewhere) agreements_.add(pending.size());
}

bool OpenLane::dispute(Pending& pending) {
  auto found = executor_.find_dispute(pending.request);
  if (!found) return false;
  const std::string name = pending.request.name;
  timeline_.end(name);
  AnnouncementContent content;
  if (found->receiver == group_.rank()) {
    content.disputes.push_back({name, found->sender, pending.request.transient, std::move(found->message)});
  }
  const MutexLock lock(mutex_);
  reserved_.erase(name);
  executes_ = false;
  if (failure_) {
    pending.handle.fail(*failure_);
    return true;
  }
  begin_negotiation(pending.request);
  in_flight_.insert_or_assign(name, std::move(pending));
  time_the_wait();
  // Even from a rank that is shutting down: the others wait for it.
  if (!content.disputes.empty()) send(std::move(content));
  return true;
}

std::vector<Pending> OpenLane::take(const Bucket& bucket) {
  const MutexLock lock(mutex_);
  std::vector<Pending> pending;
  try {
    for (const OrderedOperation& operation : bucket) pending.push_back(take_one(operation));
  } catch (const Error&) {
    // They fail with everything else that is in flight.
    for (Pending& one : pending) {
      std::string name = one.request.name;
      in_flight_.insert_or_assign(std::move(name), std::move(one));
    }
    throw;
  }
  executes_ = true;
  time_the_wait();
  return pending;
}

Pending OpenLane::take_one(const OrderedOperation& operation) {
  const auto found = in_flight_.find(operation.name);
  const bool announced = found != in_flight_.end();
  if (!announced && !(operation.signature && in_flight_.contains(std::string(kJoinName)))) {
    throw Error(ErrorCode::kProtocol, fmt::format("the coordinator ordered '{}', which rank {} has not announced",
                                                  operation.name, group_.rank()));
  }
  const Signature& ordered = announced ? found->second.request.signature : *operation.signature;
  check_sizes(operation, ordered, group_.rank(), group_.size(), announced);
  Pending pending = announced ? std::move(found->second) : neutral_contribution(operation);
  if (!announced) begin_negotiation(pending.request);
  if (announced) in_flight_.erase(found);
  reserved_.insert(operation.name);  // Until it has completed.
  return pending;
}

void OpenLane::say_goodbye() {
  AnnouncementContent goodbye = take_notes();
  goodbye.leaving = true;
  goodbye.operations = std::exchange(unsent_, {});
  const Bytes message = net::encode_message(kAnnouncementMessage, encoder_.encode(goodbye));
  try {
    net::write_exactly(*coordinator_, message, Deadline::after(kAnnounceTimeout));
  } catch (const Error&) {
    return;  // The coordinator is gone, and nobody is left to say goodbye to.
  }
}

void OpenLane::shutdown() {
  bool fails = false;
  {
    const MutexLock lock(mutex_);
    if (stopping_) return;
    stopping_ = true;
    // No goodbye from a group that has failed: it would reach the others before the reason does.
    const bool in_good_order = coordinator_ && !failure_ && !group_.abort_signal().triggered();
    fails = in_good_order && deadlock_;
    if (in_good_order && !deadlock_) say_goodbye();
  }
  if (fails) fail_with_report();
  stop_.notify();
  if (thread_.joinable()) thread_.join();
  if (!coordinator_) fail_all(Error(ErrorCode::kShutDown, "the engine was shut down on this rank"));
}

}  // namespace gyre::engine::internal
