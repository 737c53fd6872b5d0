#include "gyre/params/internal/shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "gyre/base/error.h"
#include "gyre/collectives/kernels.h"

namespace gyre::params::internal {
namespace {

collectives::Scaling divided_by(std::size_t workers) { return {.divisor = static_cast<double>(workers)}; }

}  // namespace

Shard::Shard(const TrainingSetup& setup, int server, int workers)
    : setup_(setup), rule_(setup.update), ledger_(workers, 0, setup.consistency) {
  const std::vector<Block> all = divide_into_blocks(setup.tensor_values, setup.shards);
  for (std::size_t number = 0; number < all.size(); ++number) {
    const auto count = static_cast<std::size_t>(all[number].count);
    if (all[number].server == server) {
      auto block = std::make_unique<BlockState>();
      block->number = number;
      block->first = values_of_all_servers_;
      block->values.resize(count);
      for (std::size_t slot = 0; slot < rule_.slots(); ++slot) {
        block->slots.emplace_back(count, rule_.initial_slot_value(slot));
      }
      block->by_worker.resize(static_cast<std::size_t>(workers));
      blocks_.push_back(std::move(block));
    }
    values_of_all_servers_ += count;
  }
  const MutexLock lock(mutex_);
  ledger_ = Ledger(workers, static_cast<std::uint32_t>(blocks_.size()), setup.consistency);
}

void Shard::share(int worker, std::span<float> values) {
  for (const auto& block : blocks_) {
    block->by_worker.at(static_cast<std::size_t>(worker)).shared = values.subspan(block->first, block->values.size());
  }
}

void Shard::begin_step(int worker, bool in_place) {
  for (const auto& block : blocks_) {
    Contribution& contribution = block->by_worker.at(static_cast<std::size_t>(worker));
    contribution.in_place = in_place;
    if (!in_place) contribution.own.resize(block->values.size());
  }
}

std::span<float> Shard::gradient_place(int worker, std::size_t block) {
  return blocks_.at(block)->by_worker.at(static_cast<std::size_t>(worker)).gradient();
}

std::vector<Ledger::Answer> Shard::hand_in(int worker, std::size_t number, double rate) {
  BlockState& block = *blocks_.at(number);
  block.by_worker.at(static_cast<std::size_t>(worker)).rate = rate;
  if (setup_.consistency.kind != Consistency::kSync) update(block, std::array{worker});
  Ledger::Decision decision;
  {
    const MutexLock lock(mutex_);
    decision = ledger_.hand_in(worker, static_cast<std::uint32_t>(number));
  }
  if (!decision.contributors.empty()) update(block, decision.contributors);
  return std::move(decision.answers);
}

template <typename Event>
std::vector<Ledger::Answer> Shard::note(Event event) {
  std::vector<Ledger::Decision> decisions;
  {
    const MutexLock lock(mutex_);
    decisions = event(ledger_);
  }
  return carry_out(decisions);
}

std::vector<Ledger::Answer> Shard::leave(int worker) {
  return note([worker](Ledger& ledger) { return ledger.leave(worker); });
}

std::vector<Ledger::Answer> Shard::lose(int worker) {
  return note([worker](Ledger& ledger) { return ledger.lose(worker); });
}

std::vector<Ledger::Answer> Shard::pause(int worker) {
  return note([worker](Ledger& ledger) { return ledger.pause(worker); });
}

void Shard::resume(int worker) {
  const MutexLock lock(mutex_);
  ledger_.resume(worker);
}

void Shard::set(std::size_t number, std::span<const float> values) {
  BlockState& block = *blocks_.at(number);
  const MutexLock lock(block.mutex);
  std::ranges::copy(values, block.values.begin());
}

void Shard::note_rate(int worker, double rate) {
  for (const auto& block : blocks_) block->by_worker.at(static_cast<std::size_t>(worker)).rate = rate;
}

void Shard::apply(std::span<const int> contributors) {
  for (const auto& block : blocks_) update(*block, contributors);
}

std::vector<Ledger::Answer> Shard::carry_out(const std::vector<Ledger::Decision>& decisions) {
  std::vector<Ledger::Answer> answers;
  for (const Ledger::Decision& decision : decisions) {
    if (!decision.contributors.empty()) update(*blocks_.at(decision.block), decision.contributors);
    answers.insert(answers.end(), decision.answers.begin(), decision.answers.end());
  }
  return answers;
}

/// Workers who miss steps are behind in their schedules of the rate: there the first one's counts.
void Shard::check_rates(const BlockState& block, std::span<const int> contributors) const {
  if (setup_.consistency.backup_workers > 0) return;
  const double rate = block.by_worker[static_cast<std::size_t>(contributors.front())].rate;
  for (const int worker : contributors) {
    const double other = block.by_worker[static_cast<std::size_t>(worker)].rate;
    if (other == rate) continue;
    throw Error(ErrorCode::kMismatch,
                fmt::format("worker {} steps at the learning rate {}, worker {} at {}: in sync all "
                            "workers have to use the same one",
                            contributors.front(), rate, worker, other));
  }
}

/// Writes the average over the gradients of workers whose step is in place, and to `values` for the others.
void Shard::average(BlockState& block, std::span<const int> contributors) {
  std::vector<const std::byte*> gradients;
  std::vector<std::byte*> results;
  bool all_in_place = true;
  for (const int worker : contributors) {
    Contribution& contribution = block.by_worker[static_cast<std::size_t>(worker)];
    auto* const gradient = reinterpret_cast<std::byte*>(contribution.gradient().data());
    gradients.push_back(gradient);
    if (contribution.in_place) results.push_back(gradient);
    all_in_place = all_in_place && contribution.in_place;
  }
  if (!all_in_place) results.push_back(reinterpret_cast<std::byte*>(block.values.data()));
  collectives::reduce_to_many(results, gradients, block.values.size(), collectives::DataType::kFloat32,
                              collectives::ReduceOperation::kSum, divided_by(contributors.size()));
}

/// The gradients are summed in the order of the workers, so that the bits do not depend on who came first.
void Shard::update(BlockState& block, std::span<const int> contributors) {
  check_rates(block, contributors);
  if (averages_only()) return average(block, contributors);
  std::vector<const std::byte*> gradients;
  for (const int worker : contributors) {
    gradients.push_back(
        reinterpret_cast<const std::byte*>(block.by_worker[static_cast<std::size_t>(worker)].gradient().data()));
  }
  Contribution& first = block.by_worker[static_cast<std::size_t>(contributors.front())];
  const std::span<float> gradient = first.gradient();
  if (contributors.size() > 1) {
    collectives::reduce(reinterpret_cast<std::byte*>(gradient.data()), gradients, gradient.size(),
                        collectives::DataType::kFloat32, collectives::ReduceOperation::kSum,
                        divided_by(contributors.size()));
  }
  const MutexLock lock(block.mutex);
  if (setup_.consistency.kind != Consistency::kSync) ++block.staleness[block.version - first.seen_version];
  ++block.version;
  if (rule_.options().rule == Rule::kAverage) {
    std::ranges::copy(gradient, block.values.begin());
    return;
  }
  std::vector<std::span<float>> slots(block.slots.begin(), block.slots.end());
  rule_.apply(block.values, gradient, slots, block.version, first.rate);
}

void Shard::answer_in_place(int worker, std::size_t number) {
  if (averages_only()) return;  // average() has written it.
  copy_values(worker, number, gradient_place(worker, number));
}

void Shard::copy_values(int worker, std::size_t number, std::span<float> into) {
  BlockState& block = *blocks_.at(number);
  const MutexLock lock(block.mutex);
  std::ranges::copy(block.values, into.begin());
  block.by_worker.at(static_cast<std::size_t>(worker)).seen_version = block.version;
}

std::map<std::uint64_t, std::uint64_t> Shard::staleness() const {
  std::map<std::uint64_t, std::uint64_t> total;
  for (const auto& block : blocks_) {
    const MutexLock lock(block->mutex);
    for (const auto& [staleness, count] : block->staleness) total[staleness] += count;
  }
  return total;
}

}  // namespace gyre::params::internal
