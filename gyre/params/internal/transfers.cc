#include "gyre/params/internal/transfers.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "gyre/params/internal/requests.h"
#include "gyre/params/internal/table_rows.h"

namespace gyre::params::internal {
namespace {

/// work(first row, rows) for each piece.
template <typename Work>
void for_each_piece(const TableShard& table, const Work& work) {
  const std::size_t most = rows_per_piece(table.columns());
  for (std::size_t first = 0; first < table.rows(); first += most) work(first, std::min(most, table.rows() - first));
}

}  // namespace

void Transfers::receive(int rank, std::size_t block, std::span<std::byte> bytes) {
  messages_.receive(rank, tag_of_block(shard_.number_of(block)), kBytesType, bytes).wait();
}

void Transfers::send(int rank, std::size_t block, std::span<const std::byte> bytes) {
  messages_.send(rank, tag_of_block(shard_.number_of(block)), kBytesType, bytes).wait();
}

void Transfers::receive_parameters(int rank) {
  std::vector<float> values;
  for (std::size_t block = 0; block < shard_.dense_blocks(); ++block) {
    values.resize(shard_.values(block).size());
    receive(rank, block, std::as_writable_bytes(std::span(values)));
    shard_.set(block, values);
  }
  for (std::size_t block = shard_.dense_blocks(); block < shard_.blocks(); ++block) {
    TableShard& table = shard_.table(block);
    for_each_piece(table, [&](std::size_t first, std::size_t rows) {
      const auto piece = table.values().subspan(first * table.columns(), rows * table.columns());
      receive(rank, block, std::as_writable_bytes(piece));
    });
  }
}

void Transfers::receive_state(int rank) {
  Bytes bytes;
  for (std::size_t block = 0; block < shard_.dense_blocks(); ++block) {
    bytes.resize(shard_.state_bytes(block));
    receive(rank, block, bytes);
    shard_.set_state(block, bytes);
  }
  std::vector<float> piece;
  for (std::size_t block = shard_.dense_blocks(); block < shard_.blocks(); ++block) {
    TableShard& table = shard_.table(block);
    std::uint64_t steps = 0;
    receive(rank, block, std::as_writable_bytes(std::span(&steps, 1)));
    table.set_steps(steps);
    for (std::size_t slot = 0; slot < table.slots(); ++slot) {
      for_each_piece(table, [&](std::size_t first, std::size_t rows) {
        piece.resize(rows * table.columns());
        receive(rank, block, std::as_writable_bytes(std::span(piece)));
        table.set_slot(slot, first, piece);
      });
    }
  }
}

void Transfers::send_state(int rank) {
  for (std::size_t block = 0; block < shard_.dense_blocks(); ++block) send(rank, block, shard_.state(block));
  for (std::size_t block = shard_.dense_blocks(); block < shard_.blocks(); ++block) {
    TableShard& table = shard_.table(block);
    const std::uint64_t steps = table.steps();
    send(rank, block, std::as_bytes(std::span(&steps, 1)));
    for (std::size_t slot = 0; slot < table.slots(); ++slot) {
      for_each_piece(table, [&](std::size_t first, std::size_t rows) {
        const std::vector<float> piece = table.copy_slot(slot, first, rows);
        send(rank, block, std::as_bytes(std::span(piece)));
      });
    }
  }
}

void Transfers::send_table(int rank, std::size_t block, Outbox& outbox) {
  TableShard& table = shard_.table(block);
  for_each_piece(table, [&](std::size_t first, std::size_t rows) {
    const auto piece = table.values().subspan(first * table.columns(), rows * table.columns());
    outbox.send(messages_, rank, tag_of_block(shard_.number_of(block)), kBytesType, std::as_bytes(piece), {});
  });
}

void Transfers::send_changes(int rank, int worker, std::size_t block, Outbox& outbox) {
  const std::int64_t tag = tag_of_block(shard_.number_of(block));
  const auto changes = std::make_shared<const TableRows>(shard_.table(block).take_changes(worker));
  const auto count = std::make_shared<const std::uint64_t>(changes->count());
  outbox.send(messages_, rank, tag, kBytesType, std::as_bytes(std::span(count.get(), 1)), count);
  if (*count > 0) outbox.send(messages_, rank, tag, kBytesType, changes->bytes(), changes);
}

}  // namespace gyre::params::internal
