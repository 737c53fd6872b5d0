#include "gyre/params/internal/block_exchange.h"

#include <algorithm>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/params/internal/channel.h"
#include "gyre/params/internal/requests.h"

namespace gyre::params::internal {

BlockExchange::BlockExchange(group::PointToPoint& messages, const Layout& layout, const TrainingSetup& setup)
    : messages_(messages),
      layout_(layout),
      blocks_(divide_into_blocks(setup.tensor_values, setup.shards)),
      out_(blocks_.size()),
      in_(blocks_.size()) {
  for (std::size_t block = 0; block < blocks_.size(); ++block) {
    if (blocks_[block].ranges.size() == 1) continue;
    out_[block].resize(static_cast<std::size_t>(blocks_[block].count));
    in_[block].resize(static_cast<std::size_t>(blocks_[block].count));
  }
}

void BlockExchange::send(std::span<const std::span<const float>> tensors, bool in_place, Handles& sent,
                         std::vector<SteadyClock::time_point>* began) {
  for (std::size_t block = 0; block < blocks_.size(); ++block) {
    if (began != nullptr) began->push_back(SteadyClock::now());
    if (in_place && is_shared(block)) {
      sent.push_back(messages_.send(rank_of(block), tag_of_block(block), kInPlaceType, {}));
      continue;
    }
    const std::vector<Range>& ranges = blocks_[block].ranges;
    std::span<const float> values = tensors[ranges.front().tensor].subspan(ranges.front().first, ranges.front().count);
    if (ranges.size() > 1) {
      auto place = out_[block].begin();
      for (const Range& range : ranges) {
        place = std::ranges::copy(tensors[range.tensor].subspan(range.first, range.count), place).out;
      }
      values = out_[block];
    }
    sent.push_back(messages_.send(rank_of(block), tag_of_block(block), kBytesType, std::as_bytes(values)));
  }
}

void BlockExchange::receive(Values tensors, bool in_place, Handles& arriving) {
  for (std::size_t block = 0; block < blocks_.size(); ++block) {
    if (in_place && is_shared(block)) {
      arriving.push_back(messages_.receive(rank_of(block), tag_of_block(block), kInPlaceType, {}));
      continue;
    }
    const Range& first = blocks_[block].ranges.front();
    const std::span<float> into =
        in_[block].empty() ? tensors[first.tensor].subspan(first.first, first.count) : std::span<float>(in_[block]);
    arriving.push_back(
        messages_.receive(rank_of(block), tag_of_block(block), kBytesType, std::as_writable_bytes(into)));
  }
}

void BlockExchange::spread(Values tensors, bool in_place) const {
  for (std::size_t block = 0; block < blocks_.size(); ++block) {
    if (in_place && is_shared(block)) continue;
    std::span<const float> values = in_[block];
    if (values.empty()) continue;
    for (const Range& range : blocks_[block].ranges) {
      std::ranges::copy(values.first(range.count), tensors[range.tensor].subspan(range.first, range.count).begin());
      values = values.subspan(range.count);
    }
  }
}

void BlockExchange::send_state(std::span<const TensorState> states) {
  for (std::size_t block = 0; block < blocks_.size(); ++block) {
    ByteWriter writer;
    for (const Range& range : blocks_[block].ranges) {
      writer.u64(states[range.tensor].steps);
      for (const std::vector<float>& slot : states[range.tensor].slots) {
        writer.bytes(std::as_bytes(std::span(slot).subspan(range.first, range.count)));
      }
    }
    messages_.send(rank_of(block), tag_of_block(block), kBytesType, writer.result()).wait();
  }
}

void BlockExchange::receive_state(std::span<TensorState> states) {
  for (std::size_t block = 0; block < blocks_.size(); ++block) {
    std::size_t size = 0;
    for (const Range& range : blocks_[block].ranges) {
      size += sizeof(std::uint64_t) + states[range.tensor].slots.size() * range.count * sizeof(float);
    }
    Bytes bytes(size);
    messages_.receive(rank_of(block), tag_of_block(block), kBytesType, bytes).wait();
    ByteReader reader(bytes, "an optimizer's state");
    for (const Range& range : blocks_[block].ranges) {
      TensorState& state = states[range.tensor];
      state.steps = std::max(state.steps, reader.u64());
      for (std::vector<float>& slot : state.slots) {
        const std::span<const std::byte> part = reader.bytes(range.count * sizeof(float));
        std::ranges::copy(part, std::as_writable_bytes(std::span(slot).subspan(range.first, range.count)).begin());
      }
    }
  }
}

}  // namespace gyre::params::internal
