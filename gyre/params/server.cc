#include "gyre/params/server.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/thread.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/group/messages/point_to_point.h"
#include "gyre/params/internal/channel.h"
#include "gyre/params/internal/requests.h"
#include "gyre/params/internal/shard.h"

namespace gyre::params {
namespace {

using internal::Request;
using internal::RequestKind;

/// Sums of a few numbers over the workers, in the order of the workers. Thread-safe.
class Board {
 public:
  struct Sum {
    std::vector<int> workers;
    std::shared_ptr<const std::vector<double>> values;
  };

  explicit Board(int workers) : ledger_(workers, 1, {}), given_(static_cast<std::size_t>(workers)) {}

  /// The sum, with those who get it, when all have given their values. Error(kMismatch) where their number differs.
  std::optional<Sum> give(int worker, std::vector<double> values) {
    const MutexLock lock(mutex_);
    given_.at(static_cast<std::size_t>(worker)) = std::move(values);
    return sum_of(ledger_.hand_in(worker, 0));
  }
  std::optional<Sum> leave(int worker) {
    const MutexLock lock(mutex_);
    const std::vector<Ledger::Decision> decisions = ledger_.leave(worker);
    return decisions.empty() ? std::nullopt : sum_of(decisions.front());
  }

 private:
  std::optional<Sum> sum_of(const Ledger::Decision& decision) GYRE_REQUIRES(mutex_) {
    if (decision.contributors.empty()) return std::nullopt;
    std::vector<double> total = given_[static_cast<std::size_t>(decision.contributors.front())];
    for (const int worker : std::span(decision.contributors).subspan(1)) {
      const std::vector<double>& values = given_[static_cast<std::size_t>(worker)];
      if (values.size() != total.size()) {
        throw Error(ErrorCode::kMismatch,
                    fmt::format("worker {} adds up {} numbers, worker {} {}", decision.contributors.front(),
                                total.size(), worker, values.size()));
      }
      for (std::size_t i = 0; i < total.size(); ++i) total[i] += values[i];
    }
    return Sum{decision.contributors, std::make_shared<const std::vector<double>>(std::move(total))};
  }

  Mutex mutex_;
  Ledger ledger_ GYRE_GUARDED_BY(mutex_);
  std::vector<std::vector<double>> given_ GYRE_GUARDED_BY(mutex_);
};

/// The server, as its workers' threads share it.
class Server {
 public:
  Server(group::Group& group, const Layout& layout)
      : group_(group),
        layout_(layout),
        server_(group.rank() - layout.workers),
        board_(layout.workers),
        sessions_(static_cast<std::size_t>(layout.workers)),
        messages_(group, internal::kChannel, internal::describe_message) {}

  void serve();
  ServerStatistics statistics() const {
    return {shard_ ? shard_->staleness() : std::map<std::uint64_t, std::uint64_t>()};
  }

 private:
  /// What is on its way to one worker.
  struct Session {
    struct Sending {
      group::MessageHandle handle;
      std::shared_ptr<const std::vector<double>> keeps;
    };
    Mutex mutex;
    std::vector<Sending> sending GYRE_GUARDED_BY(mutex);
    // Of the worker's own thread:
    bool configured = false;
    std::vector<std::vector<float>> answers;  // By block, where the shard's own values do not stay.
  };

  void serve_worker(int worker);
  bool answer_request(int worker, const Request& request);
  void configure(int worker, const Request& request);
  void set(int worker);
  void pull(int worker);
  void step(int worker, double rate);
  void give_to_board(int worker, const Request& request);
  void leave(int worker);

  std::span<std::byte> receive(int worker, std::int64_t tag, std::span<std::byte> into);
  Bytes receive_payload(int worker, const Request& request);
  void send(int worker, std::int64_t tag, std::span<const std::byte> bytes,
            std::shared_ptr<const std::vector<double>> keeps = {});
  void wait_for_sends(int worker);
  void answer(const std::vector<Ledger::Answer>& answers);
  void answer(const std::optional<Board::Sum>& sum);
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
  std::unique_ptr<internal::Shard> shard_;  // Made by the first worker, before anybody else uses it.
  bool set_ GYRE_GUARDED_BY(mutex_) = false;
  std::optional<Error> failure_ GYRE_GUARDED_BY(mutex_);
  // The first to go: what a failure has left unfinished may still be written to the memory above.
  group::PointToPoint messages_;
};

void Server::serve() {
  std::vector<std::thread> threads;
  for (int worker = 0; worker < layout_.workers; ++worker) {
    threads.push_back(start_thread("a parameter server's worker", [this, worker] { serve_worker(worker); }));
  }
  for (std::thread& thread : threads) thread.join();
  const MutexLock lock(mutex_);
  if (failure_) throw Error(*failure_);
}

void Server::fail(const Error& failure) {
  group_.abort(failure);
  const MutexLock lock(mutex_);
  if (!failure_) failure_ = group_.abort_signal().reason().value_or(failure);
  changed_.notify_all();
}

void Server::serve_worker(int worker) {
  try {
    std::array<std::byte, internal::kRequestBytes> bytes{};
    do {
      receive(worker, internal::kRequestTag, bytes);
      wait_for_sends(worker);
    } while (answer_request(worker, internal::decode_request(bytes)));
  } catch (const std::exception& error) {
    Error failure = as_error(error);
    if (failure.code() != ErrorCode::kAborted) {
      failure.add_context(fmt::format("parameter server {}, for worker {}", server_, worker));
    }
    fail(failure);
  }
}

/// False after the last one.
bool Server::answer_request(int worker, const Request& request) {
  switch (request.kind) {
    case RequestKind::kConfigure: configure(worker, request); return true;
    case RequestKind::kSet: set(worker); return true;
    case RequestKind::kPull: pull(worker); return true;
    case RequestKind::kStep: step(worker, request.rate); return true;
    case RequestKind::kSum: give_to_board(worker, request); return true;
    case RequestKind::kLeave: leave(worker); return false;
  }
  return false;
}

std::span<std::byte> Server::receive(int worker, std::int64_t tag, std::span<std::byte> into) {
  messages_.receive(worker, tag, internal::kBytesType, into).wait();
  return into;
}

Bytes Server::receive_payload(int worker, const Request& request) {
  Bytes payload(static_cast<std::size_t>(request.payload_bytes));
  receive(worker, internal::kPayloadTag, payload);
  return payload;
}

void Server::send(int worker, std::int64_t tag, std::span<const std::byte> bytes,
                  std::shared_ptr<const std::vector<double>> keeps) {
  Session& session = sessions_[static_cast<std::size_t>(worker)];
  const MutexLock lock(session.mutex);
  session.sending.push_back({messages_.send(worker, tag, internal::kBytesType, bytes), std::move(keeps)});
}

/// The worker has its answers when it asks for something new; only its thanks may still be on their way.
void Server::wait_for_sends(int worker) {
  Session& session = sessions_[static_cast<std::size_t>(worker)];
  std::vector<Session::Sending> sending;
  {
    const MutexLock lock(session.mutex);
    sending.swap(session.sending);
  }
  for (const Session::Sending& one : sending) one.handle.wait();
}

void Server::configure(int worker, const Request& request) {
  Bytes setup = receive_payload(worker, request);
  const MutexLock lock(mutex_);
  if (setup_.empty()) {
    const TrainingSetup decoded = decode_setup(setup);
    if (decoded.shards.servers != layout_.servers) {
      throw Error(ErrorCode::kMismatch, fmt::format("worker {} shares its parameters among {} servers; the job has {}",
                                                    worker, decoded.shards.servers, layout_.servers));
    }
    shard_ = std::make_unique<internal::Shard>(decoded, server_, layout_.workers);
    setup_ = std::move(setup);
    set_ = decoded.update.rule == Rule::kAverage;  // There is nothing to set.
  } else if (setup_ != setup) {
    throw Error(ErrorCode::kMismatch,
                fmt::format("worker {} has other parameters, another optimizer or another consistency than the workers "
                            "before it: all of them have to run the same program with the same options",
                            worker));
  }
  Session& session = sessions_[static_cast<std::size_t>(worker)];
  session.configured = true;
  if (shard_->values_stay()) return;
  for (std::size_t block = 0; block < shard_->blocks(); ++block) {
    session.answers.emplace_back(shard_->initial_values(block).size());
  }
}

internal::Shard& Server::shard_for(int worker) const {
  if (!sessions_[static_cast<std::size_t>(worker)].configured)
    throw Error(ErrorCode::kProtocol, "a request came before the setup");
  return *shard_;
}

void Server::set(int worker) {
  {
    const MutexLock lock(mutex_);
    if (worker != 0 || set_) throw Error(ErrorCode::kProtocol, "the parameters are set by worker 0, once");
  }
  for (std::size_t block = 0; block < shard_for(worker).blocks(); ++block) {
    receive(worker, internal::tag_of_block(shard_->number_of(block)),
            std::as_writable_bytes(shard_->initial_values(block)));
  }
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
  static_cast<void>(shard_for(worker));
  wait_until_set();
  for (std::uint32_t block = 0; block < shard_->blocks(); ++block) {
    answer(std::vector<Ledger::Answer>{{worker, block}});
  }
}

void Server::step(int worker, double rate) {
  static_cast<void>(shard_for(worker));
  wait_until_set();
  std::vector<group::MessageHandle> arriving;
  for (std::size_t block = 0; block < shard_->blocks(); ++block) {
    arriving.push_back(messages_.receive(worker, internal::tag_of_block(shard_->number_of(block)), internal::kBytesType,
                                         std::as_writable_bytes(shard_->gradient_place(worker, block))));
  }
  for (std::size_t block = 0; block < arriving.size(); ++block) {
    arriving[block].wait();
    answer(shard_->hand_in(worker, block, rate));
  }
}

void Server::answer(const std::vector<Ledger::Answer>& answers) {
  for (const auto& [worker, block] : answers) {
    std::span<const float> values = shard_->values(block);
    if (!shard_->values_stay()) {
      std::vector<float>& copy = sessions_[static_cast<std::size_t>(worker)].answers.at(block);
      shard_->copy_values(worker, block, copy);
      values = copy;
    }
    send(worker, internal::tag_of_block(shard_->number_of(block)), std::as_bytes(values));
  }
}

void Server::give_to_board(int worker, const Request& request) {
  const Bytes payload = receive_payload(worker, request);
  std::vector<double> values(payload.size() / sizeof(double));
  std::memcpy(values.data(), payload.data(), values.size() * sizeof(double));
  answer(board_.give(worker, std::move(values)));
}

void Server::answer(const std::optional<Board::Sum>& sum) {
  if (!sum) return;
  for (const int worker : sum->workers) {
    send(worker, internal::kPayloadTag, std::as_bytes(std::span(*sum->values)), sum->values);
  }
}

void Server::leave(int worker) {
  answer(shard_for(worker).leave(worker));
  answer(board_.leave(worker));
}

}  // namespace

ServerStatistics serve(group::Group& group, const Layout& layout) {
  internal::check_layout(group, layout, true);
  Server server(group, layout);
  server.serve();
  group.leave();  // While the links are open: to others a link that closes before is a rank that has died.
  return server.statistics();
}

}  // namespace gyre::params
