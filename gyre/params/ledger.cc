#include "gyre/params/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "gyre/base/error.h"

namespace gyre::params {

Ledger::Ledger(int workers, std::uint32_t blocks, const ConsistencyOptions& options)
    : options_(options),
      blocks_(blocks),
      workers_(static_cast<std::size_t>(workers)),
      arrived_(blocks, std::vector<bool>(static_cast<std::size_t>(workers))) {
  for (Worker& worker : workers_) worker.has_block.resize(blocks);
}

int Ledger::active_workers() const { return static_cast<int>(std::ranges::count(workers_, true, &Worker::active)); }

Ledger::Decision Ledger::hand_in(int number, std::uint32_t block) {
  Worker& worker = workers_.at(static_cast<std::size_t>(number));
  if (!worker.active || block >= blocks_ || worker.has_block[block]) {
    throw Error(
        ErrorCode::kProtocol,
        fmt::format("worker {} handed in block {} of {} in step {}, {}", number, block, blocks_, worker.clock + 1,
                    !worker.active ? "after it had left" : "which it may not, or has done already"));
  }
  worker.has_block[block] = true;
  ++worker.handed_in;
  const bool step_done = worker.handed_in == blocks_;
  if (step_done) {
    ++worker.clock;
    worker.handed_in = 0;
    worker.has_block.assign(blocks_, false);
  }
  switch (options_.kind) {
    case Consistency::kSync: {
      arrived_[block][static_cast<std::size_t>(number)] = true;
      return decide(block);
    }
    case Consistency::kAsync: return {.contributors = {}, .block = block, .answers = {{number, block}}};
    case Consistency::kBounded: {
      if (!step_done) return {.contributors = {}, .block = block, .answers = {}};
      worker.waits = true;
      return {.contributors = {}, .block = block, .answers = release()};
    }
  }
  return {};
}

/// kSync: whether the block's step has all its gradients.
Ledger::Decision Ledger::decide(std::uint32_t block) {
  Decision decision{.contributors = {}, .block = block, .answers = {}};
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    if (arrived_[block][i]) {
      decision.contributors.push_back(static_cast<int>(i));
    } else if (workers_[i].active) {
      return {.contributors = {}, .block = block, .answers = {}};
    }
  }
  arrived_[block].assign(workers_.size(), false);
  for (const int worker : decision.contributors) decision.answers.push_back({worker, block});
  return decision;
}

/// kBounded: the answers of all workers that need not wait any longer.
std::vector<Ledger::Answer> Ledger::release() {
  std::uint64_t slowest = std::numeric_limits<std::uint64_t>::max();
  for (const Worker& worker : workers_) {
    if (worker.active && !worker.pauses) slowest = std::min(slowest, worker.clock);
  }
  std::vector<Answer> answers;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    if (!worker.waits || (worker.clock > slowest && worker.clock - slowest > options_.staleness)) continue;
    worker.waits = false;
    for (std::uint32_t block = 0; block < blocks_; ++block) answers.push_back({static_cast<int>(i), block});
  }
  return answers;
}

std::vector<Ledger::Decision> Ledger::released() {
  std::vector<Decision> decisions;
  if (options_.kind == Consistency::kBounded) {
    decisions.push_back({.contributors = {}, .block = 0, .answers = release()});
  }
  return decisions;
}

void Ledger::check_between_steps(int number, std::string_view what) const {
  const Worker& worker = workers_.at(static_cast<std::size_t>(number));
  if (worker.active && !step_begun(worker) && !worker.waits) return;
  throw Error(ErrorCode::kProtocol, fmt::format("worker {} {} {}", number, what,
                                                worker.active ? "in the middle of a step" : "after it had left"));
}

std::vector<Ledger::Decision> Ledger::pause(int number) {
  check_between_steps(number, "paused");
  workers_[static_cast<std::size_t>(number)].pauses = true;
  return released();
}

void Ledger::resume(int number) {
  Worker& worker = workers_.at(static_cast<std::size_t>(number));
  if (!worker.pauses) return;
  std::uint64_t slowest = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t fastest = 0;
  for (const Worker& other : workers_) {
    if (!other.active) continue;
    fastest = std::max(fastest, other.clock);
    if (!other.pauses) slowest = std::min(slowest, other.clock);
  }
  worker.clock = std::max(worker.clock, std::min(slowest, fastest));
  worker.pauses = false;
}

std::vector<Ledger::Decision> Ledger::leave(int number) {
  check_between_steps(number, "left");
  return decide_without(workers_[static_cast<std::size_t>(number)]);
}

std::vector<Ledger::Decision> Ledger::lose(int number) {
  Worker& worker = workers_.at(static_cast<std::size_t>(number));
  if (!worker.active) return {};
  worker.waits = false;
  for (auto& by_worker : arrived_) by_worker[static_cast<std::size_t>(number)] = false;
  return decide_without(worker);
}

std::vector<Ledger::Decision> Ledger::decide_without(Worker& worker) {
  worker.active = false;
  std::vector<Decision> decisions = released();
  if (options_.kind == Consistency::kSync) {
    for (std::uint32_t block = 0; block < blocks_; ++block) {
      Decision decision = decide(block);
      if (!decision.contributors.empty()) decisions.push_back(std::move(decision));
    }
  }
  return decisions;
}

}  // namespace gyre::params
