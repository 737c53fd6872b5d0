// Other ranks' proposals lay out the memory that gradients live in: any bytes must become an order of this rank's
// tensors, or be refused.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "gyre/base/error.h"
#include "gyre/engine/internal/plan/plan_agreement.h"
#include "gyre/engine/internal/plan/plan_layout.h"

namespace {

using namespace gyre::engine;

template <typename Read>
void must_be_read_or_refused(const Read& read) {
  try {
    read();
  } catch (const gyre::Error& error) {
    const bool refused = error.code() == gyre::ErrorCode::kProtocol || error.code() == gyre::ErrorCode::kMismatch ||
                         error.code() == gyre::ErrorCode::kCorruptData ||    // Cut short.
                         error.code() == gyre::ErrorCode::kInvalidArgument;  // An order of other tensors than these.
    if (!refused) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr int kSize = 2;
  constexpr std::size_t kBucketBytes = 64;
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  must_be_read_or_refused([&] {
    const std::vector<PlanTensor> tensors{
        {"a", DataType::kFloat32, {3}}, {"b", DataType::kInt8, {5, 7}}, {"c", DataType::kFloat32, {}}};
    const auto order = internal::fullest_order(internal::decode_proposals(bytes, kSize));
    internal::lay_out(tensors, internal::complete_order(order, tensors.size()), kBucketBytes);
  });
  must_be_read_or_refused([&] { internal::check_descriptions("p", internal::decode_descriptions(bytes, kSize)); });
  return 0;
}
