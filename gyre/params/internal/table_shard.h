#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gyre/base/thread_annotations.h"
#include "gyre/params/internal/table_rows.h"
#include "gyre/params/setup.h"

namespace gyre::params::internal {

/// One server's rows of a table, and which of them have changed since each worker last got them: a worker that takes
/// these has the whole table as it is. Thread-safe; each worker has one thread here at a time.
class TableShard {
 public:
  TableShard(const Table& table, int server, int servers, const UpdateRule& rule, int workers);

  std::size_t rows() const { return rows_; }
  std::size_t columns() const { return columns_; }

  /// Makes place for the gradients of the worker's step. Error(kProtocol) for more rows than there are.
  void begin_step(int worker, std::uint32_t rows);
  /// Where they are to be received.
  std::span<std::byte> gradient_place(int worker) { return gradients_.at(static_cast<std::size_t>(worker)).bytes(); }
  /// They are there. Error(kProtocol) unless they are of rows that there are.
  void check_gradient(int worker) const;

  /// A step with the average of these workers' gradients, in their order: a row that a worker lacks counts as zeros
  /// there. `present`: whether any of them has a gradient, if of no rows.
  void update(std::span<const int> contributors, bool present, const UpdateRule& rule);

  /// The rows that have changed since the worker got them; now it has.
  TableRows take_changes(int worker);
  /// The worker gets all rows.
  void forget_changes(int worker);

  /// All values, row by row. While no worker is in a step.
  std::span<float> values();

  std::size_t slots() const { return slot_count_; }
  std::uint64_t steps();
  void set_steps(std::uint64_t steps);
  /// A part of a slot, as it is now.
  std::vector<float> copy_slot(std::size_t slot, std::size_t first_row, std::size_t rows);
  void set_slot(std::size_t slot, std::size_t first_row, std::span<const float> values);

 private:
  struct Changes {
    std::vector<bool> has;  // By row.
    std::vector<std::uint32_t> rows;
  };

  TableRows average(std::span<const int> contributors) const;

  const std::size_t rows_;
  const std::size_t columns_;
  const std::size_t slot_count_;
  std::vector<TableRows> gradients_;  // By worker.
  Mutex mutex_;
  std::vector<float> values_ GYRE_GUARDED_BY(mutex_);
  std::vector<std::vector<float>> slots_ GYRE_GUARDED_BY(mutex_);
  std::uint64_t steps_ GYRE_GUARDED_BY(mutex_) = 0;
  std::vector<Changes> changes_ GYRE_GUARDED_BY(mutex_);  // By worker.
};

}  // namespace gyre::params::internal
