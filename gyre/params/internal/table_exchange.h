#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gyre/group/messages/point_to_point.h"
#include "gyre/params/internal/table_rows.h"
#include "gyre/params/rows.h"
#include "gyre/params/setup.h"

namespace gyre::params::internal {

/// A worker's side of the tables: divides rows among the servers, and puts together what these answer. Not thread-safe.
class TableExchange {
 public:
  using Handles = std::vector<group::MessageHandle>;
  /// Whole tables, row by row.
  using Values = std::span<const std::span<float>>;

  /// `first_block`: the number of the first table among the blocks of all servers. `messages` must outlive it.
  TableExchange(group::PointToPoint& messages, const Layout& layout, const TrainingSetup& setup,
                std::size_t first_block);

  bool is_empty() const { return tables_.empty(); }

  /// The next step's gradients. Error(kInvalidArgument) for rows that a table does not have, or that are not ascending.
  void prepare(std::span<const Rows> gradients);
  /// How many rows go to the server, by table.
  std::vector<std::uint32_t> rows_for(int server) const;
  /// Sends the gradients, and expects the numbers of rows that are answered.
  void exchange(Handles& sent);
  /// Takes the answers: by table, the rows that have changed.
  std::vector<Rows> receive();

  /// To the server, and from it; each call needs a request.
  void send_whole(Values tables);
  void receive_whole(Values tables);
  void send_state(std::span<const TensorState> states);
  void receive_state(std::span<TensorState> states);

 private:
  struct Part {
    TableRows gradient;
    std::uint64_t answered = 0;  ///< Rows.
    TableRows answer;
  };

  Part& part(std::size_t table, int server) {
    return parts_[table * static_cast<std::size_t>(layout_.servers) + static_cast<std::size_t>(server)];
  }
  const Part& part(std::size_t table, int server) const {
    return parts_[table * static_cast<std::size_t>(layout_.servers) + static_cast<std::size_t>(server)];
  }
  group::MessageHandle send(std::size_t table, int server, std::span<const std::byte> bytes);
  group::MessageHandle receive(std::size_t table, int server, std::span<std::byte> bytes);
  template <typename Work>
  void for_each_piece(std::size_t table, const Work& work) const;
  void send_rows(std::size_t table, std::span<const float> values);
  void receive_rows(std::size_t table, std::span<float> values);

  group::PointToPoint& messages_;
  const Layout layout_;
  const std::vector<Table> tables_;
  const std::size_t first_block_;
  std::vector<Part> parts_;  // By table and server.
  Handles counts_;
};

}  // namespace gyre::params::internal
