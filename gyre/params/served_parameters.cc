#include "gyre/params/served_parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "gyre/base/check.h"
#include "gyre/base/error.h"

namespace gyre::params {
namespace {

std::vector<std::span<float>> spans_of(std::vector<std::vector<float>>& values) {
  return {values.begin(), values.end()};
}

std::uint64_t values_of(const Table& table) { return table.rows * table.columns; }

}  // namespace

ServedParameters::ServedParameters(Client& client, const TrainingSetup& setup)
    : client_(client), setup_(setup), memory_(client.memory()) {}

void ServedParameters::check(Values parameters, Values tables) const {
  check_sizes(parameters, memory_);
  bool fits = tables.size() == setup_.tables.size();
  for (std::size_t i = 0; fits && i < tables.size(); ++i) fits = tables[i].size() == values_of(setup_.tables[i]);
  if (!fits) throw Error(ErrorCode::kInvalidArgument, "the tables are not of the sizes that they had at first");
}

void ServedParameters::check(const Gradients& gradients) const {
  GYRE_CHECK(gradients.present.size() == memory_.size() + setup_.tables.size());
  GYRE_CHECK(gradients.rows.size() == setup_.tables.size());
  GYRE_CHECK(gradients.tensors.size() == memory_.size());
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    if (!gradients.present[i] || gradients.tensors[i].size() == memory_[i].size()) continue;
    throw Error(ErrorCode::kInvalidArgument, fmt::format("the gradient of tensor {} has {} values, not {}", i,
                                                         gradients.tensors[i].size(), memory_[i].size()));
  }
}

/// The work that waits for servers uses memory of its own: see Wait.
std::vector<std::vector<float>> ServedParameters::copies_of(Values tables) const {
  std::vector<std::vector<float>> copies;
  for (const std::span<float> table : tables) copies.emplace_back(table.begin(), table.end());
  return copies;
}

void ServedParameters::give(Values parameters, Values tables, const std::vector<std::vector<float>>& own) const {
  for (std::size_t i = 0; i < parameters.size(); ++i) std::ranges::copy(memory_[i], parameters[i].begin());
  for (std::size_t i = 0; i < tables.size(); ++i) std::ranges::copy(own[i], tables[i].begin());
}

void ServedParameters::begin(Values parameters, Values tables, const Wait& wait) {
  if (begun_) return;
  check(parameters, tables);
  for (std::size_t i = 0; i < parameters.size(); ++i) std::ranges::copy(parameters[i], memory_[i].begin());
  const auto own = std::make_shared<std::vector<std::vector<float>>>(copies_of(tables));
  wait([this, own] { client_.initialise(memory_, spans_of(*own), loaded_); });
  give(parameters, tables, *own);
  loaded_.clear();
  begun_ = true;
}

void ServedParameters::load_state(std::vector<TensorState> states) {
  const std::size_t tensors = memory_.size();
  bool fits = states.size() == tensors + setup_.tables.size();
  for (std::size_t i = 0; fits && i < states.size(); ++i) {
    const std::uint32_t group = i < tensors ? setup_.group_of(i) : setup_.tables[i - tensors].group;
    const std::uint64_t values = i < tensors ? memory_[i].size() : values_of(setup_.tables[i - tensors]);
    fits = states[i].slots.size() == UpdateRule(setup_.groups[group]).slots();
    for (const std::vector<float>& slot : states[i].slots) fits = fits && slot.size() == values;
  }
  if (!fits) throw Error(ErrorCode::kInvalidArgument, "the state is not one of this optimizer and these parameters");
  loaded_ = std::move(states);
  begun_ = false;
}

std::vector<TensorState> ServedParameters::state(const Wait& wait) {
  if (!begun_) return loaded_;
  const auto states = std::make_shared<std::vector<TensorState>>();
  wait([this, states] { *states = client_.pull_state(); });
  return std::move(*states);
}

bool ServedParameters::step(Gradients gradients, std::vector<UpdateOptions> options, Values parameters, Values tables,
                            const Wait& wait) {
  check(gradients);
  client_.set_options(std::move(options));
  begin(parameters, tables, wait);
  check(parameters, tables);
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    if (gradients.present[i]) {
      std::ranges::copy(gradients.tensors[i], memory_[i].begin());
    } else {
      std::ranges::fill(memory_[i], 0.0F);
    }
  }
  const auto accepted = std::make_shared<bool>(false);
  wait([this, accepted, rows = std::move(gradients.rows), present = std::move(gradients.present)] {
    const std::vector<std::span<const float>> sent(memory_.begin(), memory_.end());
    *accepted = client_.step(sent, memory_, present, rows).accepted;
  });
  if (!*accepted) ++dropped_;
  for (std::size_t i = 0; i < parameters.size(); ++i) std::ranges::copy(memory_[i], parameters[i].begin());
  give_changed_rows(tables);
  return *accepted;
}

void ServedParameters::give_changed_rows(Values tables) const {
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const Rows& changed = client_.changed_rows()[i];
    const auto columns = static_cast<std::size_t>(setup_.tables[i].columns);
    for (std::size_t k = 0; k < changed.numbers.size(); ++k) {
      std::ranges::copy(std::span(changed.values).subspan(k * columns, columns),
                        tables[i].subspan(changed.numbers[k] * columns, columns).begin());
    }
  }
}

void ServedParameters::settle(Values parameters, Values tables, const Wait& wait) {
  begin(parameters, tables, wait);
  check(parameters, tables);
  const auto own = std::make_shared<std::vector<std::vector<float>>>(copies_of(tables));
  wait([this, own] { client_.settle(memory_, spans_of(*own)); });
  give(parameters, tables, *own);
}

}  // namespace gyre::params
