#include "gyre/params/internal/table_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "gyre/base/check.h"
#include "gyre/base/error.h"
#include "gyre/params/internal/channel.h"
#include "gyre/params/internal/requests.h"

namespace gyre::params::internal {
namespace {

void check(const Rows& gradient, const Table& table, std::size_t number) {
  if (gradient.values.size() != gradient.numbers.size() * table.columns) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the gradient of table {} has {} rows and {} values, of {} each", number,
                            gradient.numbers.size(), gradient.values.size(), table.columns));
  }
  if (std::ranges::adjacent_find(gradient.numbers, std::ranges::greater_equal()) != gradient.numbers.end()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the rows of the gradient of table {} are not ascending, each once", number));
  }
  if (gradient.numbers.empty() || gradient.numbers.back() < table.rows) return;
  throw Error(ErrorCode::kInvalidArgument, fmt::format("the gradient of table {} has row {}; the table has {} rows",
                                                       number, gradient.numbers.back(), table.rows));
}

}  // namespace

TableExchange::TableExchange(group::PointToPoint& messages, const Layout& layout, const TrainingSetup& setup,
                             std::size_t first_block)
    : messages_(messages),
      layout_(layout),
      tables_(setup.tables),
      first_block_(first_block),
      parts_(tables_.size() * static_cast<std::size_t>(layout.servers)) {}

group::MessageHandle TableExchange::send(std::size_t table, int server, std::span<const std::byte> bytes) {
  return messages_.send(layout_.rank_of_server(server), tag_of_block(first_block_ + table), kBytesType, bytes);
}

group::MessageHandle TableExchange::receive(std::size_t table, int server, std::span<std::byte> bytes) {
  return messages_.receive(layout_.rank_of_server(server), tag_of_block(first_block_ + table), kBytesType, bytes);
}

void TableExchange::prepare(std::span<const Rows> gradients) {
  GYRE_CHECK(gradients.size() == tables_.size());
  const auto servers = static_cast<std::uint64_t>(layout_.servers);
  for (std::size_t table = 0; table < tables_.size(); ++table) {
    const Rows& gradient = gradients[table];
    check(gradient, tables_[table], table);
    const auto columns = static_cast<std::size_t>(tables_[table].columns);
    std::vector<std::size_t> counts(static_cast<std::size_t>(layout_.servers));
    for (const std::uint64_t row : gradient.numbers) ++counts[static_cast<std::size_t>(row % servers)];
    for (int server = 0; server < layout_.servers; ++server) {
      part(table, server).gradient = TableRows(counts[static_cast<std::size_t>(server)], columns);
    }
    std::vector<std::size_t> next(counts.size());
    for (std::size_t i = 0; i < gradient.numbers.size(); ++i) {
      const std::uint64_t row = gradient.numbers[i];
      const std::size_t place = next[static_cast<std::size_t>(row % servers)]++;
      TableRows& rows = part(table, static_cast<int>(row % servers)).gradient;
      rows.numbers()[place] = static_cast<std::uint32_t>(row / servers);
      std::ranges::copy(std::span(gradient.values).subspan(i * columns, columns),
                        rows.values().subspan(place * columns, columns).begin());
    }
  }
}

std::vector<std::uint32_t> TableExchange::rows_for(int server) const {
  std::vector<std::uint32_t> rows;
  for (std::size_t table = 0; table < tables_.size(); ++table) {
    rows.push_back(static_cast<std::uint32_t>(part(table, server).gradient.count()));
  }
  return rows;
}

void TableExchange::exchange(Handles& sent) {
  counts_.clear();
  for (std::size_t table = 0; table < tables_.size(); ++table) {
    for (int server = 0; server < layout_.servers; ++server) {
      Part& part = this->part(table, server);
      sent.push_back(send(table, server, part.gradient.bytes()));
      counts_.push_back(receive(table, server, std::as_writable_bytes(std::span(&part.answered, 1))));
    }
  }
}

std::vector<Rows> TableExchange::receive() {
  wait_for_all(counts_);
  Handles arriving;
  for (std::size_t table = 0; table < tables_.size(); ++table) {
    for (int server = 0; server < layout_.servers; ++server) {
      Part& part = this->part(table, server);
      if (part.answered > rows_of_server(tables_[table], server, layout_.servers)) {
        wait_for_all(arriving);
        throw Error(ErrorCode::kProtocol,
                    fmt::format("server {} answers with {} rows of a table", server, part.answered));
      }
      part.answer = TableRows(part.answered, tables_[table].columns);
      if (part.answered > 0) arriving.push_back(receive(table, server, part.answer.bytes()));
    }
  }
  wait_for_all(arriving);
  const auto servers = static_cast<std::uint64_t>(layout_.servers);
  std::vector<Rows> changed(tables_.size());
  for (std::size_t table = 0; table < tables_.size(); ++table) {
    for (int server = 0; server < layout_.servers; ++server) {
      const TableRows& answer = std::as_const(*this).part(table, server).answer;
      answer.check(rows_of_server(tables_[table], server, layout_.servers));
      for (const std::uint32_t row : answer.numbers()) {
        changed[table].numbers.push_back(row * servers + static_cast<std::uint64_t>(server));
      }
      const std::span<const float> values = answer.values();
      changed[table].values.insert(changed[table].values.end(), values.begin(), values.end());
    }
  }
  return changed;
}

/// work(server, the server's first row of the piece, how many).
template <typename Work>
void TableExchange::for_each_piece(std::size_t table, const Work& work) const {
  const std::size_t most = rows_per_piece(tables_[table].columns);
  for (int server = 0; server < layout_.servers; ++server) {
    const auto rows = static_cast<std::size_t>(rows_of_server(tables_[table], server, layout_.servers));
    for (std::size_t first = 0; first < rows; first += most) work(server, first, std::min(most, rows - first));
  }
}

void TableExchange::send_rows(std::size_t table, std::span<const float> values) {
  const auto columns = static_cast<std::size_t>(tables_[table].columns);
  const auto servers = static_cast<std::size_t>(layout_.servers);
  GYRE_CHECK(values.size() == tables_[table].rows * columns);
  std::vector<float> piece;
  for_each_piece(table, [&](int server, std::size_t first, std::size_t rows) {
    piece.resize(rows * columns);
    for (std::size_t i = 0; i < rows; ++i) {
      const std::size_t row = (first + i) * servers + static_cast<std::size_t>(server);
      std::ranges::copy(values.subspan(row * columns, columns),
                        piece.begin() + static_cast<std::ptrdiff_t>(i * columns));
    }
    send(table, server, std::as_bytes(std::span(piece))).wait();
  });
}

void TableExchange::receive_rows(std::size_t table, std::span<float> values) {
  const auto columns = static_cast<std::size_t>(tables_[table].columns);
  const auto servers = static_cast<std::size_t>(layout_.servers);
  GYRE_CHECK(values.size() == tables_[table].rows * columns);
  std::vector<float> piece;
  for_each_piece(table, [&](int server, std::size_t first, std::size_t rows) {
    piece.resize(rows * columns);
    receive(table, server, std::as_writable_bytes(std::span(piece))).wait();
    for (std::size_t i = 0; i < rows; ++i) {
      const std::size_t row = (first + i) * servers + static_cast<std::size_t>(server);
      std::ranges::copy(std::span(piece).subspan(i * columns, columns), values.subspan(row * columns, columns).begin());
    }
  });
}

void TableExchange::send_whole(Values tables) {
  for (std::size_t table = 0; table < tables_.size(); ++table) send_rows(table, tables[table]);
}

void TableExchange::receive_whole(Values tables) {
  for (std::size_t table = 0; table < tables_.size(); ++table) receive_rows(table, tables[table]);
}

void TableExchange::send_state(std::span<const TensorState> states) {
  for (std::size_t table = 0; table < tables_.size(); ++table) {
    for (int server = 0; server < layout_.servers; ++server) {
      send(table, server, std::as_bytes(std::span(&states[table].steps, 1))).wait();
    }
    for (const std::vector<float>& slot : states[table].slots) send_rows(table, slot);
  }
}

void TableExchange::receive_state(std::span<TensorState> states) {
  for (std::size_t table = 0; table < tables_.size(); ++table) {
    TensorState& state = states[table];
    for (int server = 0; server < layout_.servers; ++server) {
      std::uint64_t steps = 0;
      receive(table, server, std::as_writable_bytes(std::span(&steps, 1))).wait();
      state.steps = std::max(state.steps, steps);
    }
    for (std::vector<float>& slot : state.slots) receive_rows(table, slot);
  }
}

}  // namespace gyre::params::internal
