#include "gyre/params/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/thread.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/group/messages/point_to_point.h"
#include "gyre/params/internal/board.h"
#include "gyre/params/internal/channel.h"
#include "gyre/params/internal/requests.h"
#include "gyre/params/internal/session.h"
#include "gyre/params/internal/shard.h"
#include "gyre/params/internal/stall_watch.h"
#include "gyre/params/internal/step_notes.h"
#include "gyre/params/internal/transfers.h"
#include "gyre/params/internal/verdicts.h"

namespace gyre::params {
namespace {

using internal::Board;
using internal::Request;
using internal::RequestKind;

/// The server, as its workers' threads share it.
class Server {
 public:
  Server(group::Group& group, const Layout& layout, const ServerOptions& options)
      : group_(group),
        layout_(layout),
        server_(group.rank()),
        board_(layout.workers),
        sessions_(static_cast<std::size_t>(layout.workers)),
        messages_(group, internal::kChannel, internal::describe_message) {
    if (server_ == 0)
      watch_.emplace(internal::names_of_workers(group, layout), options, [this](const Error& error) { fail(error); });
  }

  void serve();
  ServerStatistics statistics() const {
    return {.staleness = shard_ ? shard_->staleness() : std::map<std::uint64_t, std::uint64_t>(), .late = late_};
  }

 private:
  using Session = internal::Session;

  void serve_worker(int worker);
  void serve_requests(int worker);
  bool answer_request(int worker, const Request& request);
  void configure(int worker, const Request& request);
  void agree(int worker, Bytes setup);
  void begin(const TrainingSetup& setup) GYRE_REQUIRES(mutex_);
  void share_values(int worker);
  void set(int worker, const Request& request);
  void pull(int worker);
  void step(int worker, const Request& request);
  bool is_paced(const Session& session) const { return shard_->values_stay() && !session.in_place; }
  group::MessageHandle expect_gradient(int worker, std::size_t block);
  void take_in_place(int worker);
  void take_messages(int worker);
  void take(int worker, std::size_t block);
  void announce(int worker);
  void resume(int worker);
  void give_to_board(int worker, const Request& request);
  void leave(int worker);
  void lose(int worker);
  void gone_early(int worker) GYRE_REQUIRES(mutex_);
  void lose_from_shard(int worker) GYRE_REQUIRES(mutex_);

  std::span<std::byte> receive(int worker, std::int64_t tag, std::span<std::byte> into);
  Bytes receive_payload(int worker, const Request& request);
  void send(int worker, std::int64_t tag, std::uint8_t type, std::span<const std::byte> bytes,
            std::shared_ptr<const void> keeps = {});
  void answer(const std::vector<Ledger::Answer>& answers);
  void send_values(int worker, std::uint32_t block);
  void send_rows(int worker, std::uint32_t block);
  internal::Transfers transfers(int worker) { return {messages_, shard_for(worker)}; }
  void answer(const std::optional<Board::Sum>& sum);
  void answer_with_all_blocks(int worker);
  void carry_out(const Quorum::Verdict& verdict);
  internal::Shard& shard_for(int worker) const;
  void wait_until_set();
  void fail(const Error& failure);

  group::Group& group_;
  const Layout layout_;
  const int server_;
  Board board_;
  std::vector<Session> sessions_;
  Mutex mutex_;
  ConditionVariable changed_;
  Bytes setup_ GYRE_GUARDED_BY(mutex_);
  int setup_worker_ GYRE_GUARDED_BY(mutex_) = 0;  // Which sent it first.
  std::unique_ptr<internal::Shard> shard_;        // Made by the first worker, before anybody else uses it.
  bool set_ GYRE_GUARDED_BY(mutex_) = false;
  std::uint64_t late_ = 0;                               // Of the thread that carries out verdicts.
  std::vector<int> gone_early_ GYRE_GUARDED_BY(mutex_);  // Before there was a shard.
  int finished_ GYRE_GUARDED_BY(mutex_) = 0;             // Workers that have left in good order.
  std::optional<Error> failure_ GYRE_GUARDED_BY(mutex_);
  // It goes before what is above: what a failure has left unfinished may still be written to that memory.
  group::PointToPoint messages_;
  std::unique_ptr<internal::Verdicts> verdicts_;  // Where there is a quorum; made with the shard.
  std::optional<internal::StallWatch> watch_;     // Of server 0.
};

void Server::serve() {
  std::vector<std::thread> threads;
  for (int worker = 0; worker < layout_.workers; ++worker) {
    threads.push_back(start_thread("a parameter server's worker", [this, worker] { serve_worker(worker); }));
  }
  for (std::thread& thread : threads) thread.join();
  verdicts_.reset();
  watch_.reset();
  const MutexLock lock(mutex_);
  if (failure_) throw Error(*failure_);
  if (finished_ > 0) return;
  // Another server may have ended the job, and the last worker with it.
  if (const auto reason = group_.abort_signal().reason()) throw Error(*reason);
  throw Error(ErrorCode::kPeerLost, fmt::format("all {} workers have died", layout_.workers));
}

void Server::fail(const Error& failure) {
  group_.abort(failure);
  const MutexLock lock(mutex_);
  if (!failure_) failure_ = group_.abort_signal().reason().value_or(failure);
  changed_.notify_all();
  for (Session& session : sessions_) session.pace.wake();
  if (verdicts_) verdicts_->stop();
}

void Server::serve_requests(int worker) {
  std::array<std::byte, internal::kRequestBytes> bytes{};
  do {
    receive(worker, internal::kRequestTag, bytes);
    sessions_[static_cast<std::size_t>(worker)].outbox.wait();
  } while (answer_request(worker, internal::decode_request(bytes)));
}

void Server::serve_worker(int worker) {
  try {
    try {
      serve_requests(worker);
    } catch (const Error&) {
      if (!group_.was_lost(layout_.rank_of_worker(worker))) throw;
      lose(worker);
    }
  } catch (const std::exception& error) {
    Error failure = as_error(error);
    if (!group_.abort_signal().triggered()) {
      failure.add_context(fmt::format("parameter server {}, for worker {}", server_, worker));
    }
    fail(failure);
  }
}

/// False after the last one.
bool Server::answer_request(int worker, const Request& request) {
  if (watch_) {
    const Session& session = sessions_[static_cast<std::size_t>(worker)];
    watch_->note(worker, request, session.configured ? shard_->blocks() + (verdicts_ ? 1 : 0) : 0, session.steps);
  }
  switch (request.kind) {
    case RequestKind::kConfigure: configure(worker, request); return true;
    case RequestKind::kSet: set(worker, request); return true;
    case RequestKind::kPull: pull(worker); return true;
    case RequestKind::kStep:
    case RequestKind::kStepInPlace: step(worker, request); return true;
    case RequestKind::kAnnounce: announce(worker); return true;
    case RequestKind::kPause: answer(shard_for(worker).pause(worker)); return true;
    case RequestKind::kResume: resume(worker); return true;
    case RequestKind::kState: transfers(worker).send_state(layout_.rank_of_worker(worker)); return true;
    case RequestKind::kSum: give_to_board(worker, request); return true;
    case RequestKind::kLeave: leave(worker); return false;
  }
  return false;
}

std::span<std::byte> Server::receive(int worker, std::int64_t tag, std::span<std::byte> into) {
  messages_.receive(layout_.rank_of_worker(worker), tag, internal::kBytesType, into).wait();
  return into;
}

Bytes Server::receive_payload(int worker, const Request& request) {
  Bytes payload(static_cast<std::size_t>(request.payload_bytes));
  receive(worker, internal::kPayloadTag, payload);
  return payload;
}

void Server::send(int worker, std::int64_t tag, std::uint8_t type, std::span<const std::byte> bytes,
                  std::shared_ptr<const void> keeps) {
  if (watch_) watch_->answered(worker);
  sessions_[static_cast<std::size_t>(worker)].outbox.send(messages_, layout_.rank_of_worker(worker), tag, type, bytes,
                                                          std::move(keeps));
}

/// Of what the first worker says.
void Server::begin(const TrainingSetup& setup) {
  const ConsistencyOptions& consistency = setup.consistency;
  if (consistency.backup_workers >= layout_.workers) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} of {} workers cannot be backup workers: a step needs one",
                                                         consistency.backup_workers, layout_.workers));
  }
  shard_ = std::make_unique<internal::Shard>(setup, server_, layout_.workers);
  set_ = setup.rule() == Rule::kAverage;  // There is nothing to set.
  if (consistency.kind == Consistency::kSync && consistency.backup_workers == 0) board_.require_equal_steps();
  if (consistency.needs_quorum()) {
    verdicts_ = std::make_unique<internal::Verdicts>(
        messages_, layout_, server_, consistency.backup_workers,
        [this](const Quorum::Verdict& verdict) { carry_out(verdict); }, [this](const Error& error) { fail(error); });
  }
  for (const int worker : std::exchange(gone_early_, {})) lose_from_shard(worker);
  if (consistency.survives_losses && group_.rank() == 0) {
    std::vector<int> workers;
    const int first = consistency.needs_first_worker ? 1 : 0;
    for (int worker = first; worker < layout_.workers; ++worker) workers.push_back(layout_.rank_of_worker(worker));
    group_.tolerate_losses(workers);
  }
}

void Server::configure(int worker, const Request& request) {
  Bytes setup = receive_payload(worker, request);
  agree(worker, std::move(setup));
  share_values(worker);
}

void Server::agree(int worker, Bytes setup) {
  const MutexLock lock(mutex_);
  if (setup_.empty()) {
    const TrainingSetup decoded = decode_setup(setup);
    if (decoded.shards.servers != layout_.servers) {
      throw Error(ErrorCode::kMismatch, fmt::format("worker {} shares its parameters among {} servers; the job has {}",
                                                    worker, decoded.shards.servers, layout_.servers));
    }
    begin(decoded);
    setup_ = std::move(setup);
    setup_worker_ = worker;
  } else if (setup_ != setup) {
    throw Error(ErrorCode::kMismatch,
                fmt::format("workers {} and {} have different parameters (their names, sizes or order), optimizers or "
                            "consistencies: all of them have to run the same program with the same options",
                            std::min(worker, setup_worker_), std::max(worker, setup_worker_)));
  }
  Session& session = sessions_[static_cast<std::size_t>(worker)];
  session.configured = true;
  if (!shard_->values_stay()) session.answers.resize(shard_->blocks());
}

void Server::share_values(int worker) {
  if (!internal::SharedValues::between(group_, layout_, server_, worker)) return;
  Session& session = sessions_[static_cast<std::size_t>(worker)];
  session.shared.emplace(group_, layout_, worker, shard_->values_of_all_servers());
  shard_->share(worker, session.shared->values());
}

internal::Shard& Server::shard_for(int worker) const {
  if (!sessions_[static_cast<std::size_t>(worker)].configured)
    throw Error(ErrorCode::kProtocol, "a request came before the setup");
  return *shard_;
}

/// While the workers meet, so nobody steps. What comes from a worker that dies meanwhile is overwritten by another one.
void Server::set(int worker, const Request& request) {
  transfers(worker).receive_parameters(layout_.rank_of_worker(worker));
  if (request.step == 1) transfers(worker).receive_state(layout_.rank_of_worker(worker));
  const MutexLock lock(mutex_);
  set_ = true;
  changed_.notify_all();
}

void Server::wait_until_set() {
  const MutexLock lock(mutex_);
  while (!set_ && !failure_) changed_.wait(mutex_);
  if (failure_) throw Error(*failure_);
}

void Server::pull(int worker) {
  if (shard_for(worker).averages_only()) {
    throw Error(ErrorCode::kProtocol, "a server that averages gradients holds no parameters");
  }
  wait_until_set();
  shard_->resume(worker);
  Session& session = sessions_[static_cast<std::size_t>(worker)];
  session.in_place = false;
  session.pulls = true;
  if (verdicts_) return verdicts_->ready(worker, true);
  answer_with_all_blocks(worker);
}

void Server::step(int worker, const Request& request) {
  static_cast<void>(shard_for(worker));
  wait_until_set();
  Session& session = sessions_[static_cast<std::size_t>(worker)];
  if (request.step != ++session.steps) {
    throw Error(ErrorCode::kProtocol,
                fmt::format("step {} of a worker came where step {} was due", request.step, session.steps));
  }
  if (server_ == 0) board_.begin_step(worker, request.step);
  session.in_place = request.kind == RequestKind::kStepInPlace;
  if (session.in_place && !session.shared) {
    throw Error(ErrorCode::kProtocol, "a worker of another host has no memory in common with this server");
  }
  session.pulls = false;
  internal::StepNotes notes;
  if (request.payload_bytes > 0) notes = internal::decode_notes(receive_payload(worker, request), shard_->setup());
  shard_->begin_step(worker, session.in_place, std::move(notes));
  if (session.in_place) {
    take_in_place(worker);
  } else {
    take_messages(worker);
  }
  if (verdicts_) verdicts_->ready(worker, false);
}

/// The thread of the last worker to hand in a block sums it. Each worker begins at another block, so that all threads
/// sum some of them.
void Server::take_in_place(int worker) {
  const std::size_t blocks = shard_->blocks();
  const auto workers = static_cast<std::size_t>(layout_.workers);
  std::vector<group::MessageHandle> arriving;
  while (arriving.size() < blocks) arriving.push_back(expect_gradient(worker, arriving.size()));
  for (std::size_t i = 0; i < blocks; ++i) {
    const std::size_t block = (i + blocks * static_cast<std::size_t>(worker) / workers) % blocks;
    arriving[block].wait();
    take(worker, block);
  }
}

void Server::take_messages(int worker) {
  const std::size_t blocks = shard_->blocks();
  const std::size_t at_once =
      shard_->values_stay() ? std::min<std::size_t>(internal::Pace::kMostUnanswered, blocks) : blocks;
  std::vector<group::MessageHandle> arriving;
  while (arriving.size() < at_once) arriving.push_back(expect_gradient(worker, arriving.size()));
  for (std::size_t block = 0; block < blocks; ++block) {
    arriving[block].wait();
    take(worker, block);
    if (arriving.size() == blocks) continue;
    sessions_[static_cast<std::size_t>(worker)].pace.wait(group_.abort_signal());
    arriving.push_back(expect_gradient(worker, arriving.size()));
  }
}

/// The worker's gradient of this block is there.
void Server::take(int worker, std::size_t block) {
  if (verdicts_) return shard_->check_gradient(worker, block);
  answer(shard_->hand_in(worker, block));
}

group::MessageHandle Server::expect_gradient(int worker, std::size_t block) {
  Session& session = sessions_[static_cast<std::size_t>(worker)];
  const int rank = layout_.rank_of_worker(worker);
  const std::int64_t tag = internal::tag_of_block(shard_->number_of(block));
  if (session.in_place && !shard_->is_table(block)) return messages_.receive(rank, tag, internal::kInPlaceType, {});
  if (is_paced(session)) session.pace.expect();
  return messages_.receive(rank, tag, internal::kBytesType, shard_->gradient_place(worker, block));
}

void Server::answer_with_all_blocks(int worker) {
  for (std::uint32_t block = 0; block < shard_->blocks(); ++block) send_values(worker, block);
}

void Server::carry_out(const Quorum::Verdict& verdict) {
  if (!verdict.contributors.empty()) shard_->apply(verdict.contributors);
  const auto words = std::make_shared<const Bytes>(internal::encode(verdict, layout_.workers));
  late_ += verdict.late.size() + verdict.refused.size();
  for (const std::vector<int>& workers : {verdict.admitted, verdict.refused}) {
    for (const int worker : workers) {
      if (server_ == 0) send(worker, internal::kVerdictTag, internal::kBytesType, *words, words);
    }
  }
  for (const std::vector<int>& workers : {verdict.contributors, verdict.late, verdict.asking}) {
    for (const int worker : workers) {
      if (server_ == 0) send(worker, internal::kVerdictTag, internal::kBytesType, *words, words);
      answer_with_all_blocks(worker);
    }
  }
}

void Server::answer(const std::vector<Ledger::Answer>& answers) {
  for (const auto& [worker, block] : answers) {
    Session& session = sessions_[static_cast<std::size_t>(worker)];
    const bool paced = is_paced(session);  // With its answers the worker may go on to its next step.
    send_values(worker, block);
    if (paced) session.pace.answer();
  }
}

void Server::send_values(int worker, std::uint32_t block) {
  if (shard_->is_table(block)) return send_rows(worker, block);
  Session& session = sessions_[static_cast<std::size_t>(worker)];
  const std::int64_t tag = internal::tag_of_block(shard_->number_of(block));
  if (session.in_place) {
    shard_->answer_in_place(worker, block);
    return send(worker, tag, internal::kInPlaceType, {});
  }
  std::span<const float> values = shard_->values(block);
  if (!shard_->values_stay()) {
    std::vector<float>& copy = session.answers.at(block);
    copy.resize(values.size());
    shard_->copy_values(worker, block, copy);
    values = copy;
  }
  send(worker, tag, internal::kBytesType, std::as_bytes(values));
}

/// Of a table: all, or those that have changed.
void Server::send_rows(int worker, std::uint32_t block) {
  Session& session = sessions_[static_cast<std::size_t>(worker)];
  const int rank = layout_.rank_of_worker(worker);
  if (watch_) watch_->answered(worker);
  if (!session.pulls) return transfers(worker).send_changes(rank, worker, block, session.outbox);
  shard_->table(block).forget_changes(worker);
  transfers(worker).send_table(rank, block, session.outbox);
}

void Server::announce(int worker) {
  static_cast<void>(shard_for(worker));
  if (server_ != 0 || !verdicts_) throw Error(ErrorCode::kProtocol, "there is nobody to announce a gradient to");
  wait_until_set();
  verdicts_->announce(worker);
}

void Server::resume(int worker) {
  shard_for(worker).resume(worker);
  send(worker, internal::kPayloadTag, internal::kBytesType, {});
}

void Server::give_to_board(int worker, const Request& request) {
  if (server_ != 0) throw Error(ErrorCode::kProtocol, "workers meet at server 0 alone");
  const Bytes payload = receive_payload(worker, request);
  if (payload.size() % sizeof(double) != 0) throw Error(ErrorCode::kProtocol, "a part of a number came");
  std::vector<double> values(payload.size() / sizeof(double));
  std::memcpy(values.data(), payload.data(), values.size() * sizeof(double));
  if (verdicts_ && !board_.requires_equal_steps()) verdicts_->pause(worker);
  answer(board_.give(worker, static_cast<internal::Meeting>(request.step), std::move(values)));
}

void Server::answer(const std::optional<Board::Sum>& sum) {
  if (!sum) return;
  for (const int worker : sum->workers) {
    if (verdicts_) verdicts_->resume(worker);
    send(worker, internal::kPayloadTag, internal::kBytesType, std::as_bytes(std::span(*sum->values)), sum->values);
  }
}

void Server::leave(int worker) {
  if (watch_) watch_->gone(worker);
  answer(board_.leave(worker));
  if (!sessions_[static_cast<std::size_t>(worker)].configured) {  // It has never trained.
    const MutexLock lock(mutex_);
    ++finished_;
    return gone_early(worker);
  }
  answer(shard_->leave(worker));
  if (verdicts_) verdicts_->leave(worker);
  const MutexLock lock(mutex_);
  ++finished_;
}

/// It has not trained, or died: it is taken out of whatever waits for it.
void Server::gone_early(int worker) {
  if (!shard_) return gone_early_.push_back(worker);
  lose_from_shard(worker);
}

/// The worker has died.
void Server::lose(int worker) {
  if (watch_) watch_->gone(worker);
  answer(board_.lose(worker));
  const MutexLock lock(mutex_);
  gone_early(worker);
}

void Server::lose_from_shard(int worker) {
  answer(shard_->lose(worker));
  if (verdicts_) verdicts_->lose(worker);
}

}  // namespace

ServerStatistics serve(group::Group& group, const Layout& layout, const ServerOptions& options) {
  internal::check_layout(group, layout, true);
  Server server(group, layout, options);
  server.serve();
  group.leave();  // While the links are open: to others a link that closes before is a rank that has died.
  return server.statistics();
}

}  // namespace gyre::params
