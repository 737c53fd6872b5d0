#include "gyre/params/internal/table_shard.h"

#include <fmt/format.h>

#include <algorithm>

#include "gyre/base/error.h"
#include "gyre/collectives/kernels.h"

namespace gyre::params::internal {

TableShard::TableShard(const Table& table, int server, int servers, const UpdateRule& rule, int workers)
    : rows_(static_cast<std::size_t>(rows_of_server(table, server, servers))),
      columns_(static_cast<std::size_t>(table.columns)),
      slot_count_(rule.slots()),
      gradients_(static_cast<std::size_t>(workers)),
      values_(rows_ * columns_),
      changes_(static_cast<std::size_t>(workers)) {
  for (std::size_t slot = 0; slot < slot_count_; ++slot) {
    slots_.emplace_back(rows_ * columns_, rule.initial_slot_value(slot));
  }
  for (Changes& changes : changes_) changes.has.resize(rows_);
}

void TableShard::begin_step(int worker, std::uint32_t rows) {
  if (rows > rows_) {
    throw Error(ErrorCode::kProtocol, fmt::format("gradients of {} rows of {} cannot be", rows, rows_));
  }
  gradients_.at(static_cast<std::size_t>(worker)) = TableRows(rows, columns_);
}

void TableShard::check_gradient(int worker) const { gradients_.at(static_cast<std::size_t>(worker)).check(rows_); }

TableRows TableShard::average(std::span<const int> contributors) const {
  std::vector<std::uint32_t> numbers;
  for (const int worker : contributors) {
    const std::span<const std::uint32_t> own = gradients_[static_cast<std::size_t>(worker)].numbers();
    numbers.insert(numbers.end(), own.begin(), own.end());
  }
  if (contributors.size() > 1) {
    std::ranges::sort(numbers);
    const auto rest = std::ranges::unique(numbers);
    numbers.erase(rest.begin(), rest.end());
  }
  TableRows sum(numbers.size(), columns_);
  std::ranges::copy(numbers, sum.numbers().begin());
  const std::span<float> values = sum.values();
  for (const int worker : contributors) {
    const TableRows& gradient = gradients_[static_cast<std::size_t>(worker)];
    std::size_t place = 0;
    for (std::size_t i = 0; i < gradient.count(); ++i) {
      while (numbers[place] != gradient.numbers()[i]) ++place;
      const std::span<float> into = values.subspan(place * columns_, columns_);
      const std::span<const float> own = gradient.values().subspan(i * columns_, columns_);
      collectives::accumulate(reinterpret_cast<std::byte*>(into.data()), reinterpret_cast<const std::byte*>(own.data()),
                              columns_, collectives::DataType::kFloat32, collectives::ReduceOperation::kSum);
    }
  }
  if (contributors.size() > 1) {
    collectives::scale_in_place(reinterpret_cast<std::byte*>(values.data()), values.size(),
                                collectives::DataType::kFloat32, {.divisor = static_cast<double>(contributors.size())});
  }
  return sum;
}

void TableShard::update(std::span<const int> contributors, bool present, const UpdateRule& rule) {
  if (!present) return;
  const TableRows gradient = average(contributors);
  const std::span<const std::uint32_t> numbers = gradient.numbers();
  const MutexLock lock(mutex_);
  ++steps_;
  std::vector<std::span<float>> slots;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    slots.clear();
    for (std::vector<float>& slot : slots_) slots.push_back(std::span(slot).subspan(numbers[i] * columns_, columns_));
    rule.apply(std::span(values_).subspan(numbers[i] * columns_, columns_),
               gradient.values().subspan(i * columns_, columns_), slots, steps_);
  }
  for (Changes& changes : changes_) {
    for (const std::uint32_t row : numbers) {
      if (changes.has[row]) continue;
      changes.has[row] = true;
      changes.rows.push_back(row);
    }
  }
}

TableRows TableShard::take_changes(int worker) {
  const MutexLock lock(mutex_);
  Changes& changes = changes_.at(static_cast<std::size_t>(worker));
  std::ranges::sort(changes.rows);
  TableRows result(changes.rows.size(), columns_);
  std::ranges::copy(changes.rows, result.numbers().begin());
  auto place = result.values().begin();
  for (const std::uint32_t row : changes.rows) {
    place = std::ranges::copy(std::span(values_).subspan(row * columns_, columns_), place).out;
    changes.has[row] = false;
  }
  changes.rows.clear();
  return result;
}

void TableShard::forget_changes(int worker) {
  const MutexLock lock(mutex_);
  Changes& changes = changes_.at(static_cast<std::size_t>(worker));
  for (const std::uint32_t row : changes.rows) changes.has[row] = false;
  changes.rows.clear();
}

std::span<float> TableShard::values() {
  const MutexLock lock(mutex_);
  return values_;
}

std::uint64_t TableShard::steps() {
  const MutexLock lock(mutex_);
  return steps_;
}

void TableShard::set_steps(std::uint64_t steps) {
  const MutexLock lock(mutex_);
  steps_ = steps;
}

std::vector<float> TableShard::copy_slot(std::size_t slot, std::size_t first_row, std::size_t rows) {
  const MutexLock lock(mutex_);
  const auto part = std::span(slots_.at(slot)).subspan(first_row * columns_, rows * columns_);
  return {part.begin(), part.end()};
}

void TableShard::set_slot(std::size_t slot, std::size_t first_row, std::span<const float> values) {
  const MutexLock lock(mutex_);
  std::ranges::copy(values, std::span(slots_.at(slot)).subspan(first_row * columns_, values.size()).begin());
}

}  // namespace gyre::params::internal
