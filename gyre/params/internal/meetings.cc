#include "gyre/params/internal/meetings.h"

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/params/internal/channel.h"
#include "gyre/params/internal/requests.h"

namespace gyre::params::internal {

void Meetings::meet(Meeting meeting, std::span<double> values) const {
  const int server = layout_.rank_of_server(0);
  const auto request = encode(Request{
      .kind = RequestKind::kSum, .payload_bytes = values.size_bytes(), .step = static_cast<std::uint64_t>(meeting)});
  std::vector<double> result(values.size());
  const std::array handles = {
      messages_.send(server, kRequestTag, kBytesType, request),
      messages_.send(server, kPayloadTag, kBytesType, std::as_bytes(values)),
      messages_.receive(server, kPayloadTag, kBytesType, std::as_writable_bytes(std::span(result)))};
  wait_for_all(handles);
  std::ranges::copy(result, values.begin());
}

std::vector<int> Meetings::who_is_here(Meeting meeting) const {
  std::vector<double> here(static_cast<std::size_t>(layout_.workers));
  here[static_cast<std::size_t>(worker())] = 1;
  meet(meeting, here);
  std::vector<int> result;
  for (int other = 0; other < layout_.workers; ++other) {
    if (here[static_cast<std::size_t>(other)] > 0) result.push_back(other);
  }
  return result;
}

bool Meetings::all_agree(Meeting meeting, bool agrees) const {
  std::array<double, 1> against = {agrees ? 0.0 : 1.0};
  meet(meeting, against);
  return against[0] == 0;
}

void Meetings::broadcast(std::span<std::byte> bytes) const {
  Bytes arrived(bytes.size());  // What arrives in part must not count.
  for (bool done = false; !done;) {
    const std::vector<int> here = who_is_here(Meeting::kBroadcast);
    const bool is_source = here.front() == worker();
    bool has_them = true;
    if (is_source) {
      send_to(here, bytes);
    } else {
      has_them = receive_from(here.front(), arrived);
    }
    done = all_agree(Meeting::kBroadcast, has_them);
    if (done && !is_source) std::ranges::copy(arrived, bytes.begin());
  }
}

void Meetings::send_to(const std::vector<int>& workers, std::span<const std::byte> bytes) const {
  std::vector<std::pair<int, group::MessageHandle>> sent;
  for (const int other : workers) {
    if (other == worker()) continue;
    sent.emplace_back(other, messages_.send(layout_.rank_of_worker(other), kBroadcastTag, kBytesType, bytes));
  }
  std::exception_ptr failure;
  for (const auto& [other, handle] : sent) {
    try {
      handle.wait();
    } catch (const Error&) {
      if (!was_lost(other) && !failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

/// False where the source has died.
bool Meetings::receive_from(int source, std::span<std::byte> bytes) const {
  try {
    messages_.receive(layout_.rank_of_worker(source), kBroadcastTag, kBytesType, bytes).wait();
  } catch (const Error&) {
    if (!was_lost(source)) throw;
    return false;
  }
  return true;
}

}  // namespace gyre::params::internal
