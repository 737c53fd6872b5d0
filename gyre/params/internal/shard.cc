#include "gyre/params/internal/shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "gyre/base/error.h"
#include "gyre/collectives/kernels.h"

namespace gyre::params::internal {
namespace {

std::vector<std::size_t> blocks_of(const std::vector<Block>& blocks, int server) {
  std::vector<std::size_t> own;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].server == server) own.push_back(i);
  }
  return own;
}

}  // namespace

Shard::Shard(const TrainingSetup& setup, int server, int workers)
    : setup_(setup), rule_(setup.update), ledger_(workers, 0, setup.consistency) {
  const std::vector<Block> all = divide_into_blocks(setup.tensor_values, setup.shards);
  for (const std::size_t number : blocks_of(all, server)) {
    auto block = std::make_unique<BlockState>();
    block->number = number;
    const auto count = static_cast<std::size_t>(all[number].count);
    block->values.resize(count);
    for (std::size_t slot = 0; slot < rule_.slots(); ++slot) {
      block->slots.emplace_back(count, rule_.initial_slot_value(slot));
    }
    block->by_worker.resize(static_cast<std::size_t>(workers));
    for (Contribution& contribution : block->by_worker) contribution.gradient.resize(count);
    blocks_.push_back(std::move(block));
  }
  const MutexLock lock(mutex_);
  ledger_ = Ledger(workers, static_cast<std::uint32_t>(blocks_.size()), setup.consistency);
}

std::span<float> Shard::gradient_place(int worker, std::size_t block) {
  return blocks_.at(block)->by_worker.at(static_cast<std::size_t>(worker)).gradient;
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

std::vector<Ledger::Answer> Shard::leave(int worker) {
  std::vector<Ledger::Decision> decisions;
  {
    const MutexLock lock(mutex_);
    decisions = ledger_.leave(worker);
  }
  return carry_out(std::move(decisions));
}

std::vector<Ledger::Answer> Shard::lose(int worker) {
  std::vector<Ledger::Decision> decisions;
  {
    const MutexLock lock(mutex_);
    decisions = ledger_.lose(worker);
  }
  return carry_out(std::move(decisions));
}

void Shard::note_rate(int worker, double rate) {
  for (const auto& block : blocks_) block->by_worker.at(static_cast<std::size_t>(worker)).rate = rate;
}

void Shard::apply(std::span<const int> contributors) {
  for (const auto& block : blocks_) update(*block, contributors);
}

std::vector<Ledger::Answer> Shard::carry_out(std::vector<Ledger::Decision> decisions) {
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

/// The gradients are summed in the order of the workers, so that the bits do not depend on who came first.
void Shard::update(BlockState& block, std::span<const int> contributors) {
  check_rates(block, contributors);
  std::vector<const std::byte*> gradients;
  for (const int worker : contributors) {
    gradients.push_back(
        reinterpret_cast<const std::byte*>(block.by_worker[static_cast<std::size_t>(worker)].gradient.data()));
  }
  Contribution& first = block.by_worker[static_cast<std::size_t>(contributors.front())];
  if (contributors.size() > 1) {
    collectives::reduce(reinterpret_cast<std::byte*>(first.gradient.data()), gradients, first.gradient.size(),
                        collectives::DataType::kFloat32, collectives::ReduceOperation::kSum,
                        1.0 / static_cast<double>(contributors.size()));
  }
  const MutexLock lock(block.mutex);
  if (setup_.consistency.kind != Consistency::kSync) ++block.staleness[block.version - first.seen_version];
  ++block.version;
  if (rule_.options().rule == Rule::kAverage) {
    std::ranges::copy(first.gradient, block.values.begin());
    return;
  }
  std::vector<std::span<float>> slots(block.slots.begin(), block.slots.end());
  rule_.apply(block.values, first.gradient, slots, block.version, first.rate);
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
