// What workers and servers tell each other, from a peer that knows the key and may say anything.
#include <cstddef>
#include <cstdint>
#include <span>

#include "gyre/base/error.h"
#include "gyre/params/internal/requests.h"
#include "gyre/params/internal/step_notes.h"
#include "gyre/params/internal/verdicts.h"
#include "gyre/params/setup.h"

namespace {

/// Whatever is accepted has to be encoded as it came.
template <typename Work>
void accept_or_refuse(const Work& work) {
  try {
    if (!work()) __builtin_trap();
  } catch (const gyre::Error& error) {
    const bool expected = error.code() == gyre::ErrorCode::kProtocol || error.code() == gyre::ErrorCode::kCorruptData ||
                          error.code() == gyre::ErrorCode::kInvalidArgument;
    if (!expected) throw;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMostWorkers = 64;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  accept_or_refuse([&] {
    const gyre::params::TrainingSetup setup = gyre::params::decode_setup(bytes);
    const gyre::Bytes encoded = gyre::params::encode(setup);
    return gyre::params::encode(gyre::params::decode_setup(encoded)) == encoded;
  });
  accept_or_refuse([&] {
    const gyre::params::TrainingSetup setup{.tensor_values = {3, 4},
                                            .groups = {{.rule = gyre::params::Rule::kAdagrad}},
                                            .tables = {{.rows = 100, .columns = 2}}};
    const gyre::params::internal::StepNotes notes = gyre::params::internal::decode_notes(bytes, setup);
    const gyre::Bytes encoded = gyre::params::internal::encode(notes);
    return gyre::params::internal::encode(gyre::params::internal::decode_notes(encoded, setup)) == encoded;
  });
  accept_or_refuse([&] {
    const gyre::params::internal::Request request = gyre::params::internal::decode_request(bytes);
    return gyre::params::internal::decode_request(gyre::params::internal::encode(request)).step == request.step;
  });
  accept_or_refuse([&] {
    const int workers = static_cast<int>(size % kMostWorkers) + 1;
    const gyre::params::Quorum::Verdict verdict = gyre::params::internal::decode_verdict(bytes, workers);
    const gyre::Bytes encoded = gyre::params::internal::encode(verdict, workers);
    return gyre::params::internal::decode_verdict(encoded, workers) == verdict;
  });
  return 0;
}
