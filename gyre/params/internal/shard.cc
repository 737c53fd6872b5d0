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
    : setup_(setup), steps_(static_cast<std::size_t>(workers)), ledger_(workers, 0, setup.consistency) {
  const std::vector<Block> all = divide_into_blocks(setup.tensor_values, setup.shards);
  for (std::size_t number = 0; number < all.size(); ++number) {
    const auto count = static_cast<std::size_t>(all[number].count);
    if (all[number].server == server) {
      auto block = std::make_unique<BlockState>();
      block->number = number;
      block->first = values_of_all_servers_;
      block->values.resize(count);
      const MutexLock lock(block->mutex);
      std::size_t first = 0;
      for (const Range& range : all[number].ranges) {
        RangeState& state = block->ranges.emplace_back(RangeState{.range = range, .first = first, .slots = {}});
        const UpdateRule rule(setup.groups[setup.group_of(range.tensor)]);
        for (std::size_t slot = 0; slot < rule.slots(); ++slot) {
          state.slots.emplace_back(range.count, rule.initial_slot_value(slot));
        }
        first += static_cast<std::size_t>(range.count);
      }
      block->by_worker.resize(static_cast<std::size_t>(workers));
      blocks_.push_back(std::move(block));
    }
    values_of_all_servers_ += count;
  }
  blocks_of_all_servers_ = all.size();
  const auto rules = std::make_shared<const std::vector<UpdateRule>>(setup.groups.begin(), setup.groups.end());
  for (WorkerStep& step : steps_) step.rules = rules;
  for (const Table& table : setup.tables) {
    tables_.push_back(
        std::make_unique<TableShard>(table, server, setup.shards.servers, (*rules)[table.group], workers));
  }
  const MutexLock lock(mutex_);
  ledger_ = Ledger(workers, static_cast<std::uint32_t>(blocks()), setup.consistency);
}

void Shard::share(int worker, std::span<float> values) {
  for (const auto& block : blocks_) {
    block->by_worker.at(static_cast<std::size_t>(worker)).shared = values.subspan(block->first, block->values.size());
  }
}

void Shard::begin_step(int worker, bool in_place, StepNotes notes) {
  WorkerStep& step = steps_.at(static_cast<std::size_t>(worker));
  step.present = std::move(notes.present);
  if (!notes.groups.empty()) {
    auto rules = std::make_shared<const std::vector<UpdateRule>>(notes.groups.begin(), notes.groups.end());
    for (std::size_t i = 0; i < rules->size(); ++i) (*step.rules)[i].check_successor((*rules)[i]);
    for (const Table& table : setup_.tables) check_for_tables(notes.groups[table.group]);
    step.rules = std::move(rules);
  }
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    tables_[i]->begin_step(worker, notes.table_rows.empty() ? 0 : notes.table_rows[i]);
  }
  for (const auto& block : blocks_) {
    Contribution& contribution = block->by_worker.at(static_cast<std::size_t>(worker));
    contribution.in_place = in_place;
    if (!in_place) contribution.own.resize(block->values.size());
  }
}

std::span<std::byte> Shard::gradient_place(int worker, std::size_t block) {
  if (is_table(block)) return table(block).gradient_place(worker);
  return std::as_writable_bytes(blocks_[block]->by_worker.at(static_cast<std::size_t>(worker)).gradient());
}

void Shard::check_gradient(int worker, std::size_t block) const {
  if (is_table(block)) table(block).check_gradient(worker);
}

std::vector<Ledger::Answer> Shard::hand_in(int worker, std::size_t number) {
  check_gradient(worker, number);
  if (setup_.consistency.kind != Consistency::kSync) update(number, std::array{worker});
  Ledger::Decision decision;
  {
    const MutexLock lock(mutex_);
    decision = ledger_.hand_in(worker, static_cast<std::uint32_t>(number));
  }
  if (!decision.contributors.empty()) update(number, decision.contributors);
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

void Shard::apply(std::span<const int> contributors) {
  for (std::size_t block = 0; block < blocks(); ++block) update(block, contributors);
}

std::vector<Ledger::Answer> Shard::carry_out(const std::vector<Ledger::Decision>& decisions) {
  std::vector<Ledger::Answer> answers;
  for (const Ledger::Decision& decision : decisions) {
    if (!decision.contributors.empty()) update(decision.block, decision.contributors);
    answers.insert(answers.end(), decision.answers.begin(), decision.answers.end());
  }
  return answers;
}

/// Workers who miss steps are behind in their schedules of the rate: there the first one's options count.
void Shard::check_options(std::span<const int> contributors) const {
  if (setup_.consistency.backup_workers > 0) return;
  const auto& rules = steps_[static_cast<std::size_t>(contributors.front())].rules;
  for (const int worker : contributors) {
    const auto& others = steps_[static_cast<std::size_t>(worker)].rules;
    if (others == rules || *others == *rules) continue;
    const auto [rule, other] = std::ranges::mismatch(*rules, *others);
    const double rate = rule->options().rate;
    if (rate == other->options().rate) {
      throw Error(ErrorCode::kMismatch,
                  fmt::format("workers {} and {} step with different options of '{}': in sync all "
                              "workers have to use the same ones",
                              contributors.front(), worker, rule_name(setup_.rule())));
    }
    throw Error(ErrorCode::kMismatch,
                fmt::format("worker {} steps at the learning rate {}, worker {} at {}: in sync all "
                            "workers have to use the same one",
                            contributors.front(), rate, worker, other->options().rate));
  }
}

bool Shard::is_present(std::size_t tensor, std::span<const int> contributors) const {
  return std::ranges::any_of(contributors, [&](int worker) {
    const std::vector<bool>& present = steps_[static_cast<std::size_t>(worker)].present;
    return present.empty() || present[tensor];
  });
}

const UpdateRule& Shard::rule(std::uint32_t group, std::span<const int> contributors) const {
  return steps_[static_cast<std::size_t>(contributors.front())].rules->at(group);
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

void Shard::update(std::size_t number, std::span<const int> contributors) {
  check_options(contributors);
  if (!is_table(number)) return update(*blocks_.at(number), contributors);
  const std::size_t i = number - blocks_.size();
  tables_[i]->update(contributors, is_present(setup_.tensor_values.size() + i, contributors),
                     rule(setup_.tables[i].group, contributors));
}

/// The gradients are summed in the order of the workers, so that the bits do not depend on who came first.
void Shard::update(BlockState& block, std::span<const int> contributors) {
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
  if (setup_.rule() == Rule::kAverage) {
    std::ranges::copy(gradient, block.values.begin());
    return;
  }
  step(block, gradient, contributors);
}

void Shard::step(BlockState& block, std::span<const float> gradient, std::span<const int> contributors) {
  for (RangeState& state : block.ranges) {
    const Range& range = state.range;
    if (!is_present(range.tensor, contributors)) continue;
    const std::vector<std::span<float>> slots(state.slots.begin(), state.slots.end());
    rule(setup_.group_of(range.tensor), contributors)
        .apply(std::span(block.values).subspan(state.first, range.count), gradient.subspan(state.first, range.count),
               slots, ++state.steps);
  }
}

std::size_t Shard::state_bytes(std::size_t number) const {
  BlockState& block = *blocks_.at(number);
  const MutexLock lock(block.mutex);
  std::size_t bytes = 0;
  for (const RangeState& state : block.ranges) {
    bytes += sizeof(std::uint64_t) + state.slots.size() * static_cast<std::size_t>(state.range.count) * sizeof(float);
  }
  return bytes;
}

Bytes Shard::state(std::size_t number) {
  BlockState& block = *blocks_.at(number);
  const MutexLock lock(block.mutex);
  ByteWriter writer;
  for (const RangeState& state : block.ranges) {
    writer.u64(state.steps);
    for (const std::vector<float>& slot : state.slots) writer.bytes(std::as_bytes(std::span(slot)));
  }
  return writer.take();
}

void Shard::set_state(std::size_t number, std::span<const std::byte> bytes) {
  BlockState& block = *blocks_.at(number);
  const MutexLock lock(block.mutex);
  ByteReader reader(bytes, "an optimizer's state");
  for (RangeState& state : block.ranges) {
    state.steps = reader.u64();
    for (std::vector<float>& slot : state.slots) {
      std::ranges::copy(reader.bytes(slot.size() * sizeof(float)), std::as_writable_bytes(std::span(slot)).begin());
    }
  }
}

void Shard::answer_in_place(int worker, std::size_t number) {
  if (averages_only()) return;  // average() has written it.
  copy_values(worker, number, blocks_.at(number)->by_worker.at(static_cast<std::size_t>(worker)).gradient());
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
